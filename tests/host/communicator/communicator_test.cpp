#include "mscclpp/host/communicator/communicator.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "tests/host/process_resources.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

std::shared_ptr<Bootstrap> singleRankBootstrap() {
  return std::make_shared<SocketpairBootstrap>(0, std::vector<int>{-1});
}

// Memories are identified by their size.
RegisteredMemory memoryOf(Communicator& communicator, const HostBuffer& buffer, std::size_t size) {
  return communicator.registerMemory(buffer.data(), size, Transport::SharedMemory);
}

void receiveOutOfOrder(std::shared_ptr<Bootstrap> bootstrap) {
  const int peer = 1 - bootstrap->getRank();
  Communicator communicator(bootstrap);
  HostBuffer buffer(4096);
  std::vector<RegisteredMemory> sent;
  const auto send = [&](std::size_t size, int tag) {
    sent.push_back(communicator.registerMemory(buffer.data(), size, Transport::SharedMemory));
    communicator.sendMemory(sent.back(), peer, tag);
  };
  for (std::size_t i = 1; i <= 5; ++i) send(i, 7);
  for (std::size_t i = 1; i <= 3; ++i) send(100 + i, 8);
  std::vector<std::shared_future<RegisteredMemory>> first;
  std::vector<std::shared_future<RegisteredMemory>> second;
  for (int i = 0; i < 5; ++i) first.push_back(communicator.recvMemory(peer, 7));
  for (int i = 0; i < 3; ++i) second.push_back(communicator.recvMemory(peer, 8));
  // The later before the earlier, with another tag in between.
  CHECK(first[3].get().size() == 4);
  CHECK(second[2].get().size() == 103);
  CHECK(first[0].get().size() == 1);
  CHECK(first[4].get().size() == 5);
  CHECK(second[0].get().size() == 101);
  CHECK(first[1].get().size() == 2);
  CHECK(first[1].get().size() == 2);  // shared: get() may be called again
  first[2] = {};                      // dropped without get(): its message does not go to another future
  CHECK(second[1].get().size() == 102);
  send(50, 7);
  CHECK(communicator.recvMemory(peer, 7).get().size() == 50);
  bootstrap->barrier();
}

/// Reports that a receive has started, and blocks receives until open().
class GatedBootstrap : public SocketpairBootstrap {
 public:
  using SocketpairBootstrap::SocketpairBootstrap;

  using SocketpairBootstrap::recv;
  void recv(void* data, int size, int peer, int tag) override {
    if (!entered_.exchange(true)) arrival_.set_value();
    if (gate_.wait_for(std::chrono::minutes(2)) != std::future_status::ready) {
      throw Error("the gate stayed closed", ErrorCode::Timeout);
    }
    SocketpairBootstrap::recv(data, size, peer, tag);
  }

  void waitForReceiver() { arrival_.get_future().wait(); }
  void open() { opening_.set_value(); }

 private:
  std::atomic<bool> entered_ = false;
  std::promise<void> arrival_;
  std::promise<void> opening_;
  const std::shared_future<void> gate_ = opening_.get_future().share();
};

void connectToAllRanks(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  Communicator communicator(bootstrap);
  std::vector<std::shared_future<Connection>> connecting;
  for (int peer = 0; peer < bootstrap->getNranks(); ++peer) {
    connecting.push_back(communicator.connect(Transport::SharedMemory, peer, 2));
  }
  std::vector<std::shared_future<Semaphore>> building;
  for (int peer = 0; peer < bootstrap->getNranks(); ++peer) {
    building.push_back(communicator.buildSemaphore(connecting[static_cast<std::size_t>(peer)].get(), peer, 2));
  }
  for (int peer = bootstrap->getNranks() - 1; peer >= 0; --peer) {
    auto semaphore = building[static_cast<std::size_t>(peer)].get();
    CHECK(communicator.remoteRankOf(semaphore.connection()) == peer);
    auto* token = static_cast<std::uint64_t*>(semaphore.remoteMemory().data());
    *token = static_cast<std::uint64_t>(rank) + 1;
  }
  bootstrap->barrier();
  for (int peer = 0; peer < bootstrap->getNranks(); ++peer) {
    auto semaphore = building[static_cast<std::size_t>(peer)].get();
    CHECK(*static_cast<std::uint64_t*>(semaphore.localMemory().data()) == static_cast<std::uint64_t>(peer) + 1);
  }
  bootstrap->barrier();
}

}  // namespace

TEST_CASE("futures of one tag complete in call order, ranks as threads") {
  runAsThreads(2, receiveOutOfOrder);
}
TEST_CASE("futures of one tag complete in call order, ranks as processes") {
  runAsProcesses(2, "one process receives out of order");
}
TEST_CASE("one process receives out of order" * doctest::skip()) {
  receiveOutOfOrder(bootstrapOfProcess());
}

TEST_CASE("connections and semaphores with every rank, itself included, ranks as threads") {
  runAsThreads(3, connectToAllRanks);
}
TEST_CASE("connections and semaphores with every rank, itself included, ranks as processes") {
  runAsProcesses(3, "one process connects to all");
}
TEST_CASE("one process connects to all" * doctest::skip()) {
  auto bootstrap = bootstrapOfProcess();
  const std::size_t descriptors = openDescriptors();
  const std::size_t threads = liveThreads();
  connectToAllRanks(bootstrap);
  CHECK(openDescriptors() == descriptors);
  CHECK(threadCountReturnsTo(threads));
}

TEST_CASE("a rank sends to itself in either order") {
  Communicator communicator(singleRankBootstrap());
  HostBuffer buffer(64);
  auto before = communicator.recvMemory(0, 4);
  communicator.sendMemory(memoryOf(communicator, buffer, 10), 0, 4);
  communicator.sendMemory(memoryOf(communicator, buffer, 11), 0, 5);
  CHECK(communicator.recvMemory(0, 5).get().size() == 11);
  CHECK(before.get().size() == 10);
  CHECK(before.get().data() == buffer.data());
}

TEST_CASE("futures outlive the communicator") {
  std::shared_future<RegisteredMemory> future;
  HostBuffer buffer(64);
  RegisteredMemory memory;
  {
    Communicator communicator(singleRankBootstrap());
    memory = memoryOf(communicator, buffer, 10);
    communicator.sendMemory(memory, 0);
    future = communicator.recvMemory(0);
  }
  CHECK(future.get().size() == 10);
}

TEST_CASE("futures keep no resources alive, whether waited for or not") {
  const auto bootstrap = singleRankBootstrap();
  {
    Communicator communicator(bootstrap);
    const HostBuffer buffer(4096);
    communicator.sendMemory(memoryOf(communicator, buffer, 1), 0, 1);
    static_cast<void>(communicator.recvMemory(0));
    const auto earlier = communicator.recvMemory(0, 1), later = communicator.recvMemory(0, 1);
    communicator.sendMemory(memoryOf(communicator, buffer, 2), 0, 1);
    CHECK(later.get().size() == 2);
    CHECK(earlier.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
    static_cast<void>(communicator.recvMemory(0, 1));
  }
  CHECK(bootstrap.use_count() == 1);
}

TEST_CASE("any number of futures of one tag can be pending, and be dropped") {
  constexpr std::size_t count = 30'000;
  std::vector<std::shared_future<RegisteredMemory>> futures;
  const HostBuffer buffer(4096);
  {
    Communicator communicator(singleRankBootstrap());
    const RegisteredMemory memory = memoryOf(communicator, buffer, 1);
    for (std::size_t i = 0; i < count; ++i) {
      futures.push_back(communicator.recvMemory(0));
      communicator.sendMemory(memory, 0);
    }
    CHECK(futures.back().get().size() == 1);
    std::size_t ready = 0;
    for (const auto& future : futures) ready += future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    CHECK(ready == count);
    futures.clear();
    for (std::size_t i = 0; i < count; ++i) futures.push_back(communicator.recvMemory(0));
    futures.erase(futures.begin(), futures.end() - 1);
  }
  futures.clear();
}

TEST_CASE("while a future waits for its message, others are created and the communicator is destroyed") {
  const auto mesh = SocketpairBootstrap::makeSocketMesh(2);
  const auto bootstrap = std::make_shared<GatedBootstrap>(0, mesh[0]);
  Communicator peer(std::make_shared<SocketpairBootstrap>(1, mesh[1]));
  const HostBuffer buffer(4096);
  std::vector<RegisteredMemory> sent;
  for (const std::size_t size : {1, 2}) {
    sent.push_back(memoryOf(peer, buffer, size));
    peer.sendMemory(sent.back(), 0);
  }
  auto communicator = std::make_unique<Communicator>(bootstrap);
  auto first = std::async(std::launch::async, [future = communicator->recvMemory(1)] { return future.get().size(); });
  bootstrap->waitForReceiver();
  auto second = std::async(std::launch::async, [&communicator] {
    auto future = communicator->recvMemory(1);
    communicator.reset();
    return future;
  });
  CHECK(second.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  bootstrap->open();
  CHECK(first.get() == 1);
  CHECK(second.get().get().size() == 2);
}

TEST_CASE("invalid usage is rejected") {
  CHECK_THROWS_AS(Communicator(nullptr), Error);
  Communicator communicator(singleRankBootstrap());
  HostBuffer buffer(64);
  CHECK_THROWS_AS(communicator.sendMemory(memoryOf(communicator, buffer, 1), 1), Error);
  CHECK_THROWS_AS(communicator.sendMemory(memoryOf(communicator, buffer, 1), -1), Error);
  CHECK_THROWS_AS(communicator.recvMemory(0, -1), Error);
  CHECK_THROWS_AS(communicator.sendMemory(RegisteredMemory(), 0), Error);
  CHECK_THROWS_AS(communicator.remoteRankOf(Connection()), std::out_of_range);
  const auto endpoint = communicator.context()->createEndpoint(Transport::SharedMemory);
  const auto foreign = communicator.context()->connect(endpoint, endpoint);
  CHECK_THROWS_AS(communicator.tagOf(foreign), std::out_of_range);
  // A message of another kind is an error that names the kinds.
  communicator.sendMemory(memoryOf(communicator, buffer, 1), 0, 1);
  auto connecting = communicator.connect(endpoint, 0, 1);
  CHECK_THROWS_WITH_AS(connecting.get(), doctest::Contains("serialised Endpoint"), Error);
}

TEST_CASE("endpoints of different transports are an error that names the peer and both transports") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    const int rank = bootstrap->getRank();
    Communicator communicator(bootstrap);
    const EndpointConfig config(rank == 0 ? Transport::SharedMemory : Transport::Ethernet, DeviceType::CPU);
    const auto future = communicator.connect(config, 1 - rank);
    CHECK_THROWS_WITH_AS(future.get(),
                         doctest::Contains(rank == 0 ? "connect to rank 1: connect: this rank's endpoint uses "
                                                       "SharedMemory and the peer's Ethernet"
                                                     : "connect to rank 0: connect: this rank's endpoint uses Ethernet "
                                                       "and the peer's SharedMemory"),
                         Error);
    bootstrap->barrier();
  });
}

TEST_CASE("a failed receive fails the later ones of its tag too") {
  auto mesh = SocketpairBootstrap::makeSocketMesh(2);
  ::close(mesh[1][0]);  // the peer has disconnected
  Communicator communicator(std::make_shared<SocketpairBootstrap>(0, mesh[0]));
  auto first = communicator.recvMemory(1);
  auto second = communicator.recvMemory(1);
  CHECK_THROWS_AS(second.get(), Error);
  CHECK_THROWS_AS(first.get(), Error);
}
