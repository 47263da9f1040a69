// Mutants of copies through shared memory: every missing wait must be detected, as wrong data or as a race.
#include <doctest/doctest.h>

#include "mscclpp/basic/bulk.hpp"
#include "mscclpp/sync/semaphore.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/races.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {
namespace {

constexpr std::size_t chunkBytes = 64;
constexpr int chunks = 4;
constexpr int prefetchDepth = 2;

/// A ring as in basic/bulk_copy.hpp, by one thread. Left: the number of groups of stores that may be reading their
/// chunk when the next chunk is loaded. Returns whether the copy is correct.
template <int Left>
bool copyThroughRing() {
  constexpr int total = 40;
  const auto from = randomBits<std::byte>(total * chunkBytes, 3);
  std::vector<std::byte> to(from.size(), std::byte{poisonByte});
  struct {
    alignas(128) std::byte data[chunks][chunkBytes];
    BulkBarrier loaded[chunks];
  } ring;
  for (auto& barrier : ring.loaded) barrier.init();
  for (int i = 0; i < total + prefetchDepth; ++i) {
    if (i < total) {
      bulkStoreWaitSource<Left>();
      ring.loaded[i % chunks].arriveAndExpect(chunkBytes);
      bulkLoad(ring.data[i % chunks], from.data() + static_cast<std::size_t>(i) * chunkBytes, chunkBytes,
               ring.loaded[i % chunks]);
    }
    if (i >= prefetchDepth) {
      const int j = i - prefetchDepth;
      std::uint32_t phase = static_cast<std::uint32_t>(j / chunks % 2);
      CHECK(ring.loaded[j % chunks].wait(phase));
      bulkStore(to.data() + static_cast<std::size_t>(j) * chunkBytes, ring.data[j % chunks], chunkBytes);
      bulkStoreCommit();
    }
  }
  bulkStoreWait();
  return to == from;
}

/// One rank sends a chunk and signals; the other reads it. Returns the byte that the other rank saw.
template <class WaitForStores>
std::byte sendChunk(const WaitForStores& waitForStores) {
  EmulatedBackend<1> backend;
  auto memory = backend.allocate(2, 256, 0);
  const auto window = memory.window();
  std::byte seen{};
  backend.launch({2, 1, 1}, [&](int rank, const auto&) {
    const auto counter = [&](int r) { return reinterpret_cast<std::uint64_t*>(window.at(r)); };
    SemaphoreHandle semaphore{{},          counter(rank), counter(1 - rank), counter(rank) + 1, backend.control(),
                              waitTimeout, rank,          1 - rank};
    if (rank == 0) {
      alignas(16) const std::byte chunk[16] = {std::byte{7}};
      bulkStore(window.at(1, 128), chunk, 16);
      bulkStoreCommit();
      waitForStores();
      semaphore.signal();
      semaphore.wait();  // until the other rank has read
      bulkStoreWait();
    } else {
      semaphore.wait();
      seen = *window.at(1, 128);
      semaphore.signal();
    }
  });
  return seen;
}

/// One thread of a block loads data in rounds, the other reads it after the barrier's phase has completed, as observed
/// with acquire (correct) or with a relaxed load (mutant).
template <class WaitFunction>
int countLoadRaces(const WaitFunction& waitFor) {
  // Not a constant: ThreadSanitizer does not see a copy that the compiler inlines.
  const volatile std::uint32_t loadBytes = 64;
  EmulatedBackend<1> backend;
  auto memory = backend.allocate(1, 4096, 0);
  auto* from = memory.window().at(0);
  return countRaces([&] {
    backend.launch({1, 1, 2, 1024}, [&](int, const auto& grid) {
      auto* chunk = grid.sharedMemory();
      auto& barrier = *reinterpret_cast<BulkBarrier*>(chunk + 512);
      const auto block = grid.block();
      if (block.rank() == 0) barrier.init();
      block.sync();
      std::uint32_t sum = 0;
      for (std::uint32_t round = 0; round < 20; ++round) {
        if (block.rank() == 0) {
          const std::uint32_t bytes = loadBytes;
          barrier.arriveAndExpect(bytes);
          bulkLoad(chunk, from + round * 64, bytes, barrier);
        } else {
          waitFor(barrier, round % 2);
          for (int i = 0; i < 64; ++i) sum += static_cast<std::uint32_t>(chunk[i]);
        }
        block.sync();
      }
      if (block.rank() == 1) *reinterpret_cast<std::uint32_t*>(from) = sum;
    });
  });
}

const auto acquiringWait = [](const BulkBarrier& barrier, std::uint32_t phase) { CHECK(barrier.wait(phase)); };

}  // namespace

TEST_CASE("bulk mutants: the original passes the same tests") {
  CHECK(copyThroughRing<chunks - prefetchDepth - 1>());
  CHECK(sendChunk([] { bulkStoreWait(); }) == std::byte{7});
  CHECK(countLoadRaces(acquiringWait) == 0);
}

TEST_CASE("bulk mutants: a chunk is loaded while it is still being stored") {
  CHECK_FALSE(copyThroughRing<chunks - prefetchDepth>());
}

TEST_CASE("bulk mutants: a signal before the stores have completed") {
  CHECK(sendChunk([] {}) == std::byte{0});
  CHECK(sendChunk([] { bulkStoreWait<1>(); }) == std::byte{0});
}

TEST_CASE("bulk mutants: a relaxed poll of the barrier is a race") {
  const auto relaxedPoll = [](const BulkBarrier& barrier, std::uint32_t phase) {
    while (
        arch::host::BarrierWord::unpack(arch::load<arch::Order::Relaxed, arch::Scope::Device>(&barrier.word)).parity ==
        phase) {
      arch::backoff(100);
    }
  };
  CHECK((countLoadRaces(relaxedPoll) > 0) == detectsRaces);
}

}  // namespace mscclpp::test
