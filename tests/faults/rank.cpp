#include "rank.hpp"

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "controller_messages.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "tests/host/process_resources.hpp"

namespace mscclpp::faults {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t maxElements = 1 << 20;

// Shared memory of this library has its name in the mapping's path, that of a CUDA context does not.
int sharedMappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:mscclpp") != std::string::npos ? 1 : 0;
  return count;
}

/// Calls collectives with the same random sizes and algorithms on every rank, and checks each element.
class CollectiveCaller {
 public:
  CollectiveCaller(Collectives& collectives, perf::Backend& backend, const Message& start)
      : collectives_(collectives),
        backend_(backend),
        random_(start.seed),
        rank_(start.rank),
        sum_(static_cast<float>(start.ranks) * static_cast<float>(start.ranks + 1) / 2),
        algorithms_(collectives.algorithms()),
        input_(backend.allocate(maxElements * sizeof(float))),
        output_(backend.allocate(maxElements * sizeof(float))),
        values_(maxElements, static_cast<float>(rank_ + 1)) {
    backend.upload(input_.get(), values_.data(), maxElements * sizeof(float));
  }

  /// Throws what the collective throws. Returns false if the result is wrong.
  bool call() {
    const std::size_t count = std::size_t{1} << random_() % 21;
    const std::string algorithm = algorithms_[random_() % algorithms_.size()];
    const bool isServed = collectives_.supports({.count = count, .algorithm = algorithm});
    backend_.runOnce([&](CUstream_st* stream) {
      collectives_.allReduce(input_.get(), output_.get(), count, DataType::FLOAT32, ReduceOp::SUM, stream,
                             isServed ? algorithm : "");
    });
    collectives_.check();
    backend_.download(values_.data(), output_.get(), count * sizeof(float));
    for (std::size_t i = 0; i < count; ++i) {
      if (values_[i] != sum_) return false;
    }
    return true;
  }

 private:
  Collectives& collectives_;
  perf::Backend& backend_;
  std::mt19937 random_;
  int rank_;
  float sum_;
  std::vector<std::string> algorithms_;
  std::shared_ptr<void> input_;
  std::shared_ptr<void> output_;
  std::vector<float> values_;
};

// One generation, up to the call that throws.
void runGeneration(int socket, bool onGpu, perf::Backend& backend, const Message& start, const UniqueId& id) {
  auto bootstrap = std::make_shared<TcpBootstrap>(start.rank, start.ranks);
  bootstrap->initialize(id);
  auto communicator = std::make_shared<Communicator>(bootstrap);
  Collectives collectives(communicator, onGpu ? DeviceType::GPU : DeviceType::CPU, Collectives::Algorithms::All);
  CollectiveCaller caller(collectives, backend, start);
  bootstrap->barrier();
  sendMessage(socket, Message{.type = MessageType::Running});
  Message message{.type = MessageType::Failed};
  try {
    while (caller.call()) ++message.calls;
    message.type = MessageType::UnexpectedError;
    setText(message, "a result was wrong");
  } catch (const Error& error) {
    message.code = static_cast<std::int32_t>(error.getErrorCode());
    setText(message, error.what());
  }
  sendMessage(socket, message);
}

}  // namespace

void serve(int socket, bool onGpu, const std::function<std::unique_ptr<perf::Backend>()>& makeBackend) {
  std::unique_ptr<perf::Backend> backend;
  int threads = -1;
  Message message{};
  while (receiveMessage(socket, message, std::chrono::steady_clock::now() + 1h) == ReceiveStatus::Received) {
    Message reply{};
    try {
      if (!backend) backend = makeBackend();
      if (message.type == MessageType::CreateUniqueId) {
        reply.type = MessageType::UniqueIdCreated;
        reply.id = TcpBootstrap::createUniqueId();
      } else {
        runGeneration(socket, onGpu, *backend, message, message.id);
        // A joined thread may still be listed briefly.
        if (threads >= 0) test::threadCountReturnsTo(static_cast<std::size_t>(threads));
        reply.type = MessageType::CleanedUp;
        reply.resources[0] = static_cast<std::int32_t>(test::openDescriptors());
        reply.resources[1] = static_cast<std::int32_t>(test::liveThreads());
        reply.resources[2] = sharedMappings();
        threads = reply.resources[1];
      }
    } catch (const std::exception& error) {
      reply.type = MessageType::UnexpectedError;
      setText(reply, error.what());
    }
    if (!sendMessage(socket, reply)) return;
  }
}

}  // namespace mscclpp::faults
