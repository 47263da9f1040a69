// Weakened copies through shared memory: each forgotten wait must show, in the data or as a race.
#include <doctest/doctest.h>

#include "backend/backend.hpp"
#include "backend/data.hpp"
#include "backend/races.hpp"
#include "mscclpp/basic/bulk.hpp"
#include "mscclpp/sync/semaphore.hpp"

namespace mscclpp::test {
namespace {

constexpr std::size_t pieceBytes = 64;
constexpr int pieces = 4;
constexpr int ahead = 2;

/// A ring as in basic/bulk_copy.hpp, by one thread. Left: how many groups may still read their piece when it is loaded anew. Returns whether the copy is right.
template <int Left>
bool copyThroughRing() {
  constexpr int total = 40;
  const auto from = randomBits<std::byte>(total * pieceBytes, 3);
  std::vector<std::byte> to(from.size(), std::byte{poisonByte});
  struct {
    alignas(128) std::byte data[pieces][pieceBytes];
    BulkBarrier loaded[pieces];
  } ring;
  for (auto& barrier : ring.loaded) barrier.init();
  for (int i = 0; i < total + ahead; ++i) {
    if (i < total) {
      bulkStoreWaitSource<Left>();
      ring.loaded[i % pieces].arriveAndExpect(pieceBytes);
      bulkLoad(ring.data[i % pieces], from.data() + static_cast<std::size_t>(i) * pieceBytes, pieceBytes,
               ring.loaded[i % pieces]);
    }
    if (i >= ahead) {
      const int j = i - ahead;
      std::uint32_t phase = static_cast<std::uint32_t>(j / pieces % 2);
      CHECK(ring.loaded[j % pieces].wait(phase));
      bulkStore(to.data() + static_cast<std::size_t>(j) * pieceBytes, ring.data[j % pieces], pieceBytes);
      bulkStoreCommit();
    }
  }
  bulkStoreWait();
  return to == from;
}

/// One rank sends a piece and signals; the other reads it. Returns what the other has seen.
template <class WaitForStores>
std::byte sendPiece(const WaitForStores& waitForStores) {
  EmulatedBackend<1> backend;
  auto memory = backend.allocate(2, 256, 0);
  const auto window = memory.window();
  std::byte seen{};
  backend.launch({2, 1, 1}, [&](int rank, const auto&) {
    const auto counter = [&](int r) { return reinterpret_cast<std::uint64_t*>(window.at(r)); };
    SemaphoreHandle semaphore{counter(rank), counter(1 - rank), counter(rank) + 1, backend.control(), waitTimeout,
                              rank,          1 - rank};
    if (rank == 0) {
      alignas(16) const std::byte piece[16] = {std::byte{7}};
      bulkStore(window.at(1, 128), piece, 16);
      bulkStoreCommit();
      waitForStores();
      semaphore.signal();
      semaphore.wait();  // until the other has looked
      bulkStoreWait();
    } else {
      semaphore.wait();
      seen = *window.at(1, 128);
      semaphore.signal();
    }
  });
  return seen;
}

/// One thread of a block loads rounds of data, the other reads them: after the barrier's phase has ended (acquire), or after it has seen so in passing.
template <class Await>
int racesOfLoads(const Await& await) {
  // Not a constant: ThreadSanitizer sees no copy that the compiler makes inline.
  const volatile std::uint32_t loadBytes = 64;
  EmulatedBackend<1> backend;
  auto memory = backend.allocate(1, 4096, 0);
  auto* from = memory.window().at(0);
  return racesOf([&] {
    backend.launch({1, 1, 2, 1024}, [&](int, const auto& grid) {
      auto* piece = grid.sharedMemory();
      auto& barrier = *reinterpret_cast<BulkBarrier*>(piece + 512);
      const auto block = grid.block();
      if (block.rank() == 0) barrier.init();
      block.sync();
      std::uint32_t sum = 0;
      for (std::uint32_t round = 0; round < 20; ++round) {
        if (block.rank() == 0) {
          const std::uint32_t bytes = loadBytes;
          barrier.arriveAndExpect(bytes);
          bulkLoad(piece, from + round * 64, bytes, barrier);
        } else {
          await(barrier, round % 2);
          for (int i = 0; i < 64; ++i) sum += static_cast<std::uint32_t>(piece[i]);
        }
        block.sync();
      }
      if (block.rank() == 1) *reinterpret_cast<std::uint32_t*>(from) = sum;
    });
  });
}

const auto awaited = [](const BulkBarrier& barrier, std::uint32_t phase) { CHECK(barrier.wait(phase)); };

}  // namespace

TEST_CASE("bulk mutants: the real ones pass the same trials") {
  CHECK(copyThroughRing<pieces - ahead - 1>());
  CHECK(sendPiece([] { bulkStoreWait(); }) == std::byte{7});
  CHECK(racesOfLoads(awaited) == 0);
}

TEST_CASE("bulk mutants: a piece that is loaded while it is still being stored") {
  CHECK_FALSE(copyThroughRing<pieces - ahead>());
}

TEST_CASE("bulk mutants: a signal before the stores have ended") {
  CHECK(sendPiece([] {}) == std::byte{0});
  CHECK(sendPiece([] { bulkStoreWait<1>(); }) == std::byte{0});
}

TEST_CASE("bulk mutants: a look at the barrier that acquires nothing is a race") {
  const auto glanced = [](const BulkBarrier& barrier, std::uint32_t phase) {
    while (
        arch::twin::BarrierWord::unpack(arch::load<arch::Order::Relaxed, arch::Scope::Device>(&barrier.word)).parity ==
        phase) {
      arch::pauseAfterFailure(100);
    }
  };
  CHECK((racesOfLoads(glanced) > 0) == findsRaces);
}

}  // namespace mscclpp::test
