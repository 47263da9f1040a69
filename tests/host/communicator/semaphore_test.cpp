#include "mscclpp/host/communicator/semaphore.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "mscclpp/basic/group.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/channel/device_handle.hpp"
#include "mscclpp/host/channel/host_semaphore.hpp"
#include "mscclpp/host/channel/memory_channel.hpp"
#include "mscclpp/host/channel/memory_semaphore.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

static_assert(std::is_trivially_copyable_v<DeviceHandle<MemoryChannel>>);
static_assert(std::is_trivially_copyable_v<DeviceHandle<Host2DeviceSemaphore>>);

namespace {

std::shared_ptr<Bootstrap> singleRankBootstrap() {
  return std::make_shared<SocketpairBootstrap>(0, std::vector<int>{-1});
}

// Two ranks pass a word back and forth with each kind of semaphore.
void alternate(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  const int peer = 1 - rank;
  Communicator communicator(bootstrap);
  const auto connection = communicator.connect(Transport::SharedMemory, peer).get();
  MemoryDevice2DeviceSemaphore memorySemaphore(communicator, connection);
  Host2DeviceSemaphore deviceSemaphore(communicator, connection);
  Host2HostSemaphore hostSemaphore(communicator, connection);
  auto memoryHandle = deviceHandle(memorySemaphore);
  auto deviceSide = deviceHandle(deviceSemaphore);
  CHECK(memoryHandle.rank == rank);
  CHECK(memoryHandle.peer == peer);
  CHECK(memoryHandle.waitTimeout > 0);
  CHECK(memoryHandle.waitControl == communicator.monitor(DeviceType::CPU)->deviceControl());

  HostBuffer buffer(8);
  auto memory = communicator.registerMemory(buffer.data(), 8, Transport::SharedMemory);
  communicator.sendMemory(memory, peer);
  const auto remote = communicator.recvMemory(peer).get();
  auto& own = *static_cast<std::uint64_t*>(buffer.data());
  auto& theirs = *static_cast<std::uint64_t*>(remote.data());
  std::size_t wrong = 0;
  for (std::uint64_t round = 1; round <= 300; ++round) {
    const auto turn = [&](auto&& signal, auto&& wait) {
      if (rank == 0) {
        theirs = round;  // plain: the semaphore orders it
        signal();
        wait();
      } else {
        wait();
        wrong += own != round ? 1 : 0;
        theirs = round;
        signal();
      }
      if (rank == 0) wrong += own != round ? 1 : 0;
    };
    turn([&] { memoryHandle.signal(); }, [&] { wrong += memoryHandle.wait() ? 0 : 1; });
    turn([&] { deviceSemaphore.signal(); }, [&] { wrong += deviceSide.wait() ? 0 : 1; });
    turn([&] { hostSemaphore.signal(); }, [&] { hostSemaphore.wait(-1); });
  }
  CHECK(wrong == 0);
  CHECK_FALSE(hostSemaphore.poll());
  CHECK_FALSE(memoryHandle.poll());
  CHECK_FALSE(deviceSide.poll());
  communicator.monitor(DeviceType::CPU)->check();
  bootstrap->barrier();
}

// put, signal, wait and packets, through the host classes.
void exchangeByChannel(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  const int peer = 1 - rank;
  Communicator communicator(bootstrap);
  const auto connection = communicator.connect(Transport::SharedMemory, peer).get();
  constexpr std::size_t bytes = 4000;
  HostBuffer source(bytes);
  HostBuffer target(3 * bytes);
  std::memset(source.data(), 10 + rank, bytes);
  const auto local = communicator.registerMemory(source.data(), bytes, Transport::SharedMemory);
  const auto inbox = communicator.registerMemory(target.data(), 3 * bytes, Transport::SharedMemory);
  communicator.sendMemory(inbox, peer);
  const auto outbox = communicator.recvMemory(peer).get();
  const auto semaphore = communicator.buildSemaphore(connection, peer).get();
  const MemoryChannel channel(semaphore, outbox, local, static_cast<char*>(target.data()) + bytes);
  auto handle = channel.deviceHandle();
  handle.put(0, 0, bytes, 0, 1);
  handle.signal();
  CHECK(handle.wait());
  const std::vector<char> expected(bytes, static_cast<char>(10 + peer));
  CHECK(std::memcmp(target.data(), expected.data(), bytes) == 0);

  handle.putPackets(bytes, 0, bytes, 0, 1, 7);
  bootstrap->barrier();
  CHECK(handle.unpackPackets(0, 0, bytes, 0, 1, 7));
  CHECK(std::memcmp(source.data(), expected.data(), bytes) == 0);
  communicator.monitor(DeviceType::CPU)->check();
  bootstrap->barrier();
}

}  // namespace

TEST_CASE("each kind of semaphore orders data, ranks as threads") {
  runAsThreads(2, alternate);
}
TEST_CASE("each kind of semaphore orders data, ranks as processes") {
  runAsProcesses(2, "one process alternates");
}
TEST_CASE("one process alternates" * doctest::skip()) {
  alternate(bootstrapOfProcess());
}

TEST_CASE("memory channels, ranks as threads") {
  runAsThreads(2, exchangeByChannel);
}
TEST_CASE("memory channels, ranks as processes") {
  runAsProcesses(2, "one process exchanges by channel");
}
TEST_CASE("one process exchanges by channel" * doctest::skip()) {
  exchangeByChannel(bootstrapOfProcess());
}

TEST_CASE("counters are zero, distinct, and reused") {
  Communicator communicator(singleRankBootstrap());
  const auto endpoint = communicator.context()->createEndpoint(Transport::SharedMemory);
  const auto connection = communicator.context()->connect(endpoint, endpoint);
  std::vector<SemaphoreStub> stubs;
  for (int i = 0; i < 1500; ++i) stubs.emplace_back(connection);
  for (auto& stub : stubs) {
    auto& counter = *static_cast<std::uint64_t*>(stub.memory().data());
    CHECK(counter == 0);
    counter = 77;
  }
  CHECK(stubs[0].memory().data() != stubs[1].memory().data());
  CHECK(stubs[0].memory().size() == 8);
  stubs.clear();
  for (int i = 0; i < 1500; ++i) stubs.emplace_back(connection);
  for (auto& stub : stubs) CHECK(*static_cast<std::uint64_t*>(stub.memory().data()) == 0);
}

TEST_CASE("a wait for a signal that is never sent times out") {
  Communicator communicator(singleRankBootstrap());
  const auto connection = communicator.connect(Transport::SharedMemory, 0).get();
  Host2HostSemaphore host(communicator, connection);
  CHECK_THROWS_WITH_AS(host.wait(2000), doctest::Contains("signal 1 of rank 0"), Error);
  // The failed wait consumed nothing.
  host.signal();
  host.wait();

  MemoryDevice2DeviceSemaphore memory(communicator, connection);
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    communicator.abort();
  });
  auto handle = memory.deviceHandle();
  CHECK_FALSE(handle.wait());
  aborter.join();
  CHECK_THROWS_WITH_AS(communicator.monitor(DeviceType::CPU)->check(), doctest::Contains("rank 0"), Error);
  CHECK_THROWS_AS(host.wait(-1), Error);
}

TEST_CASE("invalid usage of semaphores and channels is rejected") {
  Communicator communicator(singleRankBootstrap());
  const auto connection = communicator.connect(Transport::SharedMemory, 0).get();
  const SemaphoreStub local(connection);
  const auto remote = SemaphoreStub::deserialize(local.serialize());
  CHECK_THROWS_AS(Semaphore(remote, local), Error);
  CHECK_THROWS_AS(SemaphoreStub{Connection()}, Error);
  CHECK_THROWS_AS(MemoryDevice2DeviceSemaphore{Semaphore()}, Error);
  CHECK_THROWS_AS(Host2HostSemaphore{Semaphore()}, Error);
  CHECK_THROWS_AS(BaseMemoryChannel().deviceHandle(), Error);
  const Semaphore semaphore(local, remote);
  CHECK(semaphore.monitor() == nullptr);
  CHECK(MemoryDevice2DeviceSemaphore(semaphore).deviceHandle().waitControl == nullptr);
  CHECK_THROWS_AS(MemoryChannel(semaphore, RegisteredMemory(), RegisteredMemory()), Error);
  std::vector<char> plain(16);
  const auto unshared = communicator.registerMemory(plain.data(), plain.size(), NoTransports);
  CHECK_THROWS_WITH_AS(MemoryChannel(semaphore, unshared, unshared), doctest::Contains("SharedMemory"), Error);
  CHECK_THROWS_AS(MemoryChannel(nullptr, unshared, unshared), Error);
}
