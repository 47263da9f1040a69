// Multicast among CPU ranks, with the same setup protocol as among GPUs: channels that reduce and broadcast, and groups
// whose failure is reported on every rank.
#include "mscclpp/host/channel/nvls.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <cstring>
#include <string>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "tests/host/process_resources.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

using V = Vector<float, 4>;

std::vector<int> everyone(const Bootstrap& bootstrap) {
  std::vector<int> ranks;
  for (int rank = bootstrap.getNranks() - 1; rank >= 0; --rank) ranks.push_back(rank);  // any order is allowed
  return ranks;
}

/// Writes rank-dependent numbers, reduces them, and lets one rank broadcast; with two channels of one connection.
void exchange(SwitchChannelHandle channel, int position, int members, std::size_t vectors) {
  auto* local = channel.local<V>();
  for (std::size_t v = 0; v < vectors; ++v) local[v] = V{{static_cast<float>(v), static_cast<float>(position), 1, -2}};
  channel.signal();
  REQUIRE(channel.wait());
  const auto sum = static_cast<float>(members);
  const float positions = sum * (sum - 1) / 2;
  for (std::size_t v = 0; v < vectors; ++v) {
    const auto total = channel.reduce<V>(v);
    CHECK(total[0] == static_cast<float>(v) * sum);
    CHECK(total[1] == positions);
    CHECK(total[2] == sum);
    CHECK(total[3] == -2 * sum);
  }
  channel.signal();
  REQUIRE(channel.wait());
  if (position == members - 1) channel.broadcast(1, V{{7, 8, 9, 10}});
  auto last = channel.semaphore(switchChannelSemaphores - 1);
  last.signal();
  REQUIRE(last.wait());
  CHECK(local[1][0] == 7);
  CHECK(local[1][3] == 10);
  CHECK(local[0][1] == static_cast<float>(position));
}

void reduceAndBroadcast(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  const int nRanks = bootstrap->getNranks();
  const auto communicator = std::make_shared<Communicator>(bootstrap);
  const HostBuffer first(8192);
  const HostBuffer second(4096);
  {
    const auto connection = connectNvlsCollectiveOn(DeviceType::CPU, communicator, everyone(*bootstrap), 8192);
    CHECK(connection->bufferSize() == 8192);
    CHECK(connection->granularity() <= 4096);
    CHECK(connection->ranks().size() == static_cast<std::size_t>(nRanks));
    // Of the second buffer only the upper half.
    const auto channel = connection->bindMemory(first.data(), 6144);
    const auto other = connection->bindAllocatedMemory(
        reinterpret_cast<unsigned long long>(static_cast<char*>(second.data()) + 2048), 2048);
    CHECK(channel.getDevicePtr() == first.data());
    CHECK(channel.deviceHandle().bufferSize == 6144);
    exchange(channel.deviceHandle(), rank, nRanks, 384);
    exchange(other.deviceHandle(), rank, nRanks, 128);
    communicator->monitor(DeviceType::CPU)->check();
    CHECK_THROWS_WITH_AS(connection->bindMemory(first.data(), 16),
                         doctest::Contains("more than is left of the connection's 8192"), Error);
    bootstrap->barrier();
  }
  // A group of some of the ranks, while the others do something else.
  if (nRanks > 2) {
    const bool member = rank != 1;
    if (member) {
      std::vector<int> ranks = everyone(*bootstrap);
      ranks.erase(std::find(ranks.begin(), ranks.end(), 1));
      const auto channel =
          connectNvlsCollectiveOn(DeviceType::CPU, communicator, ranks, 4096)->bindMemory(second.data(), 4096);
      exchange(channel.deviceHandle(), rank == 0 ? 0 : rank - 1, nRanks - 1,
               256);  // the channel outlives the connection
    }
    bootstrap->barrier();
  }
}

/// MSCCL++-compatible overload: the root's connection is sent as bytes; the connection does not use the user's
/// bootstrap.
void joinByBytes(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank(), nRanks = bootstrap->getNranks();
  std::unique_ptr<NvlsConnection> connection;
  std::vector<char> bytes;
  if (rank == 0) {
    connection = std::make_unique<NvlsConnection>(4096, nRanks, DeviceType::CPU);
    bytes = connection->serialize();
    for (int peer = 1; peer < nRanks; ++peer) bootstrap->send(bytes, peer, 0);
  } else {
    bootstrap->recv(bytes, 0, 0);
    connection = std::make_unique<NvlsConnection>(bytes);
    CHECK_THROWS_WITH_AS(connection->serialize(), doctest::Contains("only of the connection that the root"), Error);
  }
  connection->attachBarrier(nRanks);
  CHECK_THROWS_WITH_AS(connection->attachBarrier(nRanks + 1), doctest::Contains("is of"), Error);
  CHECK_THROWS_WITH_AS(connection->granularity(), doctest::Contains("are connected by bindMemory"), Error);
  bootstrap->barrier();
  CHECK_THROWS_WITH_AS(NvlsConnection{bytes}, doctest::Contains("all have joined"), Error);
  bytes.pop_back();
  CHECK_THROWS_AS(NvlsConnection{bytes}, Error);
  const HostBuffer buffer(4096);
  const auto channel = connection->bindMemory(buffer.data(), 4096);
  CHECK(connection->ranks().size() == static_cast<std::size_t>(nRanks));
  const auto handle = channel.deviceHandle();
  exchange(handle, handle.barrier_.rank, nRanks, 256);
  bootstrap->barrier();
}

/// Each of these is an error on every rank, after which the ranks can continue.
void disagree(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  const auto communicator = std::make_shared<Communicator>(bootstrap);
  const auto ranks = everyone(*bootstrap);
  const auto connect = [&](std::size_t bytes) {
    return connectNvlsCollectiveOn(DeviceType::CPU, communicator, ranks, bytes);
  };
  CHECK_THROWS_WITH_AS(connect(rank == 1 ? 200 : 100), doctest::Contains("every rank must ask for the same"), Error);
  CHECK_THROWS_WITH_AS(connect(rank == 2 ? 0 : 100), doctest::Contains("at least 1"), Error);
  CHECK_THROWS_AS(connectNvlsCollectiveOn(rank == 0 ? DeviceType::GPU : DeviceType::CPU, communicator, ranks, 64),
                  BaseError);
  CHECK_THROWS_AS(connectNvlsCollectiveOn(DeviceType::CPU, nullptr, ranks, 64), Error);
  CHECK_THROWS_WITH_AS(connectNvlsCollectiveOn(DeviceType::CPU, communicator, {rank, rank}, 64),
                       doctest::Contains("must be different"), Error);
  CHECK_THROWS_WITH_AS(connectNvlsCollectiveOn(DeviceType::CPU, communicator, {rank + 1}, 64),
                       doctest::Contains("is not among"), Error);

  const auto connection = connect(4096);
  const HostBuffer buffer(4096);
  std::vector<char> ordinary(64);
  // One rank has memory that no peer can access: the others get an error with the rank and the reason.
  const auto bind = [&](void* data, std::size_t bytes) { return connection->bindMemory(data, bytes); };
  if (rank == 1) {
    CHECK_THROWS_AS(bind(buffer.data(), std::size_t{1} << 40), Error);
    CHECK_THROWS_AS(bind(nullptr, 64), Error);
    CHECK_THROWS_WITH_AS(bind(buffer.data(), 24), doctest::Contains("multiples of 16"), Error);
    CHECK_THROWS_AS(bind(ordinary.data() + (16 - reinterpret_cast<std::uintptr_t>(ordinary.data()) % 16) % 16, 32),
                    Error);
    CHECK_THROWS_WITH_AS(bind(buffer.data(), 128), doctest::Contains("64 bytes, and this one 128"), Error);
  } else {
    for (int i = 0; i < 4; ++i)
      CHECK_THROWS_WITH_AS(bind(buffer.data(), 64), doctest::Contains("rank 1 failed to offer memory"), Error);
    CHECK_THROWS_WITH_AS(bind(buffer.data(), 64), doctest::Contains("128 bytes, and this one 64"), Error);
  }
  // A rank makes a different call.
  if (rank == 1) {
    CHECK_THROWS_WITH_AS(connect(4096), doctest::Contains("must make the same calls"), Error);
  } else {
    CHECK_THROWS_WITH_AS(bind(buffer.data(), 64), doctest::Contains("rank 1 is about to prepare"), Error);
  }
  const auto channel = bind(buffer.data(), 4096);
  exchange(channel.deviceHandle(), rank, bootstrap->getNranks(), 256);
  bootstrap->barrier();
}

}  // namespace

TEST_CASE("reduce and broadcast, ranks as threads") {
  for (int nRanks : {1, 2, 3, 5}) runAsThreads(nRanks, reduceAndBroadcast);
}
TEST_CASE("reduce and broadcast, ranks as processes") {
  for (int nRanks : {2, 4}) runAsProcesses(nRanks, "one process reduces and broadcasts");
}
TEST_CASE("one process reduces and broadcasts" * doctest::skip()) {
  auto bootstrap = bootstrapOfProcess();
  const std::size_t descriptors = openDescriptors();
  const std::size_t threads = liveThreads();
  reduceAndBroadcast(bootstrap);
  CHECK(openDescriptors() == descriptors);
  CHECK(threadCountReturnsTo(threads));
}

TEST_CASE("invalid serialized connections are rejected, and no rank joins by them") {
  CHECK_THROWS_AS(NvlsConnection(4096, 0, DeviceType::CPU), Error);
  CHECK_THROWS_AS(NvlsConnection(4096, INT_MAX, DeviceType::CPU), Error);
  const NvlsConnection root(4096, 2, DeviceType::CPU);
  const auto bytes = root.serialize();
  // Layout: header (16), UniqueId, buffer size (8), ranks, device type (4 each), and the counter's memory after its
  // length (8); in the latter the address follows a header, a hash and an id.
  constexpr std::size_t ranks = 16 + sizeof(UniqueId) + 8;
  constexpr std::size_t where = ranks + 4;
  constexpr std::size_t address = where + 4 + 8 + 16 + 8 + 16;
  const auto refused = [&](std::size_t offset, std::uint32_t value,
                           const char* why = "are not a serialised NvlsConnection") {
    auto forged = bytes;
    std::memcpy(forged.data() + offset, &value, sizeof(value));
    CHECK_THROWS_WITH_AS(NvlsConnection{forged}, doctest::Contains(why), Error);
  };
  for (const std::uint32_t value : {0U, 0x80000000U, 0x7fffffffU, 1U << 17}) refused(ranks, value);
  for (const std::uint32_t value : {0U, 3U, 0xffffffffU}) refused(where, value);
  std::uint32_t low;
  std::memcpy(&low, bytes.data() + address, sizeof(low));
  refused(address, low + 1, "this process registered that memory with another address or size");
  CHECK_NOTHROW(NvlsConnection{bytes});
}

TEST_CASE("ranks that join by a serialized connection, as threads") {
  for (int nRanks : {1, 3}) runAsThreads(nRanks, joinByBytes);
}
TEST_CASE("ranks that join by a serialized connection, as processes") {
  runAsProcesses(3, "one process joins by bytes");
}
TEST_CASE("one process joins by bytes" * doctest::skip()) {
  joinByBytes(bootstrapOfProcess());
}

TEST_CASE("inconsistent arguments are an error on all ranks, ranks as threads") {
  runAsThreads(3, disagree);
}
TEST_CASE("inconsistent arguments are an error on all ranks, ranks as processes") {
  runAsProcesses(3, "one process disagrees");
}
TEST_CASE("one process disagrees" * doctest::skip()) {
  disagree(bootstrapOfProcess());
}

TEST_CASE("use of an empty switch channel is an error") {
  CHECK_THROWS_WITH_AS(SwitchChannel().deviceHandle(), doctest::Contains("bindMemory"), Error);
  CHECK_THROWS_AS(SwitchChannel().getDevicePtr(), Error);
}

TEST_CASE("a switch channel over a mapping that the caller made") {
  std::array<float, 4> own{}, everywhere{};
  std::shared_ptr<void> mapping(everywhere.data(), [](void*) {});
  {
    const SwitchChannel channel(own.data(), mapping, sizeof(own));
    CHECK(mapping.use_count() == 2);
    const auto handle = channel.deviceHandle();
    CHECK(handle.devicePtr == own.data());
    CHECK(handle.mcPtr == everywhere.data());
    CHECK(handle.bufferSize == sizeof(own));
  }
  CHECK(mapping.use_count() == 1);
}
