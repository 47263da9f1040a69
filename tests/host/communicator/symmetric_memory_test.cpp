#include "mscclpp/host/communicator/symmetric_memory.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "tests/host/process_resources.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

// Every rank writes a word into its slot of every rank's part, its own included.
void writeEverywhere(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  const int nRanks = bootstrap->getNranks();
  Communicator communicator(bootstrap);
  for (std::size_t extra : {std::size_t{0}, std::size_t{12345}, std::size_t{1} << 20}) {
    const std::size_t bytes = static_cast<std::size_t>(nRanks) * sizeof(int) + extra;
    SymmetricMemory memory(communicator, bytes, DeviceType::CPU);
    CHECK(memory.bytes() == bytes);
    CHECK(memory.rank() == rank);
    CHECK(memory.nRanks() == nRanks);
    CHECK(memory.local() == memory.peer(rank));
    CHECK_THROWS_AS(memory.peer(nRanks), Error);
    CHECK_THROWS_AS(memory.peer(-1), Error);
    for (int peer = 0; peer < nRanks; ++peer) CHECK(memory.window().at(peer) == memory.peer(peer));
    const auto* own = static_cast<const char*>(memory.local());
    CHECK(
        std::all_of(own + static_cast<std::size_t>(nRanks) * sizeof(int), own + bytes, [](char b) { return b == 0; }));
    bootstrap->barrier();
    for (int peer = 0; peer < nRanks; ++peer) static_cast<int*>(memory.peer(peer))[rank] = 10 * peer + rank;
    bootstrap->barrier();
    for (int writer = 0; writer < nRanks; ++writer) {
      CHECK(static_cast<int*>(memory.local())[writer] == 10 * rank + writer);
    }
    const SymmetricMemory moved = std::move(memory);
    CHECK(static_cast<int*>(moved.local())[rank] == 11 * rank);
    bootstrap->barrier();
  }
}

void disagree(std::shared_ptr<Bootstrap> bootstrap) {
  Communicator communicator(bootstrap);
  const int rank = bootstrap->getRank();
  CHECK_THROWS_WITH_AS(SymmetricMemory(communicator, rank == 1 ? 200 : 100, DeviceType::CPU),
                       doctest::Contains("100 bytes on CPU, but rank 1 for 200 bytes on CPU"), Error);
  CHECK_THROWS_AS(SymmetricMemory(communicator, 0, DeviceType::CPU), Error);
  CHECK_THROWS_AS(SymmetricMemory(communicator, 8, DeviceType::Unknown), Error);
  // One rank fails: all ranks get an error.
  CHECK_THROWS_AS(SymmetricMemory(communicator, std::size_t{1} << 60, DeviceType::CPU), BaseError);
  SymmetricMemory afterwards(communicator, 64, DeviceType::CPU);
  static_cast<int*>(afterwards.peer((rank + 1) % bootstrap->getNranks()))[0] = 1;
  bootstrap->barrier();
  CHECK(static_cast<int*>(afterwards.local())[0] == 1);
  bootstrap->barrier();
}

}  // namespace

TEST_CASE("every rank accesses every part, ranks as threads") {
  for (int nRanks : {1, 2, 3, 4}) runAsThreads(nRanks, writeEverywhere);
}
TEST_CASE("every rank accesses every part, ranks as processes") {
  for (int nRanks : {2, 4}) runAsProcesses(nRanks, "one process writes everywhere");
}
TEST_CASE("one process writes everywhere" * doctest::skip()) {
  auto bootstrap = bootstrapOfProcess();
  const std::size_t descriptors = openDescriptors();
  const std::size_t threads = liveThreads();
  writeEverywhere(bootstrap);
  CHECK(openDescriptors() == descriptors);
  CHECK(threadCountReturnsTo(threads));
}

TEST_CASE("inconsistent sizes are an error on all ranks, ranks as threads") {
  runAsThreads(3, disagree);
}
TEST_CASE("inconsistent sizes are an error on all ranks, ranks as processes") {
  runAsProcesses(3, "one process disagrees");
}
TEST_CASE("one process disagrees" * doctest::skip()) {
  disagree(bootstrapOfProcess());
}
