#include "rank.hpp"

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "host/process_resources.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "wire.hpp"

namespace mscclpp::faults {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t longest = 1 << 20;

// Shared memory of this library bears its name, and that of a CUDA context does not.
int sharedMappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:mscclpp") != std::string::npos ? 1 : 0;
  return count;
}

/// Calls with the same random sizes and algorithms on every rank, checked element for element.
class Caller {
 public:
  Caller(Collectives& collectives, perf::Place& place, const Note& start)
      : collectives_(collectives),
        place_(place),
        random_(start.seed),
        rank_(start.rank),
        sum_(static_cast<float>(start.ranks) * static_cast<float>(start.ranks + 1) / 2),
        algorithms_(collectives.algorithms()),
        input_(place.allocate(longest * sizeof(float))),
        output_(place.allocate(longest * sizeof(float))),
        values_(longest, static_cast<float>(rank_ + 1)) {
    place.upload(input_.get(), values_.data(), longest * sizeof(float));
  }

  /// Throws what the collective throws. False: the result was wrong.
  bool call() {
    const std::size_t count = std::size_t{1} << random_() % 21;
    const std::string algorithm = algorithms_[random_() % algorithms_.size()];
    const bool isServed = collectives_.serves(algorithm, count, DataType::FLOAT32, ReduceOp::SUM);
    place_.once([&](CUstream_st* stream) {
      collectives_.allReduce(input_.get(), output_.get(), count, DataType::FLOAT32, ReduceOp::SUM, stream,
                             isServed ? algorithm : "");
    });
    collectives_.check();
    place_.download(values_.data(), output_.get(), count * sizeof(float));
    for (std::size_t i = 0; i < count; ++i) {
      if (values_[i] != sum_) return false;
    }
    return true;
  }

 private:
  Collectives& collectives_;
  perf::Place& place_;
  std::mt19937 random_;
  int rank_;
  float sum_;
  std::vector<std::string> algorithms_;
  std::shared_ptr<void> input_;
  std::shared_ptr<void> output_;
  std::vector<float> values_;
};

// One generation, up to the call that throws.
void live(int socket, bool onGpu, perf::Place& place, const Note& start, const UniqueId& id) {
  auto bootstrap = std::make_shared<TcpBootstrap>(start.rank, start.ranks);
  bootstrap->initialize(id);
  auto communicator = std::make_shared<Communicator>(bootstrap);
  Collectives collectives(communicator, onGpu ? DeviceType::GPU : DeviceType::CPU, Collectives::Algorithms::All);
  Caller caller(collectives, place, start);
  bootstrap->barrier();
  say(socket, Note{.word = Word::Calling});
  Note note{.word = Word::Failed};
  try {
    while (caller.call()) ++note.calls;
    note.word = Word::Surprise;
    setText(note, "a result was wrong");
  } catch (const Error& error) {
    note.code = static_cast<std::int32_t>(error.getErrorCode());
    setText(note, error.what());
  }
  say(socket, note);
}

}  // namespace

void serve(int socket, bool onGpu, const std::function<std::unique_ptr<perf::Place>()>& makePlace) {
  std::unique_ptr<perf::Place> place;
  int threads = -1;
  Note note{};
  while (hear(socket, note, std::chrono::steady_clock::now() + 1h) == Heard::Note) {
    Note reply{};
    try {
      if (!place) place = makePlace();
      if (note.word == Word::MakeId) {
        reply.word = Word::Id;
        reply.id = TcpBootstrap::createUniqueId();
      } else {
        live(socket, onGpu, *place, note, note.id);
        // A thread that was joined is listed for another moment.
        if (threads >= 0) test::threadsReturnTo(static_cast<std::size_t>(threads));
        reply.word = Word::Clean;
        reply.holds[0] = static_cast<std::int32_t>(test::openDescriptors());
        reply.holds[1] = static_cast<std::int32_t>(test::liveThreads());
        reply.holds[2] = sharedMappings();
        threads = reply.holds[1];
      }
    } catch (const std::exception& error) {
      reply.word = Word::Surprise;
      setText(reply, error.what());
    }
    if (!say(socket, reply)) return;
  }
}

}  // namespace mscclpp::faults
