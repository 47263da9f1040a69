// Cases of basic/bulk_copy.hpp: every alignment of both pointers, sizes round those of chunks, queues of copies, and
// copies to peers.
#pragma once

#include <doctest/doctest.h>

#include "mscclpp/basic/bulk_copy.hpp"
#include "mscclpp/sync/semaphore.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

inline constexpr BulkCopyConfig smallConfig{.chunkBytes = 256, .chunks = 4, .prefetchDepth = 2};

/// One copy per strip, whose index determines the alignments and the size. All copies of a block go through one queue.
struct BulkCopies {
  static constexpr std::size_t strip = 4096;
  static constexpr std::size_t count = 400;

  static MSCCLPP_HOST_DEVICE std::size_t dst(std::size_t i) { return i * strip + i % 17; }
  static MSCCLPP_HOST_DEVICE std::size_t src(std::size_t i) {
    return i % 3 == 0 ? i % 16 : (i % 17) % 16 + i / 17 % 2 * 16;
  }
  static MSCCLPP_HOST_DEVICE std::size_t size(std::size_t i) {
    return i < 100 ? i : i < 200 ? (i % 14 + 1) * 256 + i / 14 - 10 : i * 37 % 4000;
  }
};

template <BulkCopyConfig shape>
struct BulkCopiesBody {
  Window<> dst;
  Window<> src;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    using C = BulkCopies;
    auto wait = policy;
    const auto block = grid.block();
    BulkCopier<shape> copier(block, *reinterpret_cast<BulkScratch<shape>*>(grid.sharedMemory()));
    for (std::size_t i = grid.blockIndex(); i < C::count; i += grid.blockCount()) {
      copier.copy(block, dst.at(rank) + C::dst(i), src.at(rank) + C::src(i), C::size(i), wait);
      if (i % 64 == 0) copier.flush(block, wait);
    }
    copier.finish(block, wait);
  }
};

/// The same strips, several at a time: copies of different sizes and alignments are interleaved. Each warp has its own
/// queue.
template <BulkCopyConfig shape>
struct BulkRoundRobinBody {
  static constexpr int warps = 2;
  Window<> dst;
  Window<> src;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    using C = BulkCopies;
    auto wait = policy;
    const auto warp = grid.warp();
    const int index = grid.warpIndex();
    BulkCopier<shape> copier(warp, reinterpret_cast<BulkScratch<shape>*>(grid.sharedMemory())[index]);
    std::size_t first = 0;
    for (std::size_t n = 0; first < C::count; ++n) {
      const std::size_t together = n % 6;  // including 0
      if (n % warps == static_cast<std::size_t>(index)) {
        const std::size_t left = C::count - first;
        const auto regionAt = [&](int i) {
          const std::size_t strip = first + static_cast<std::size_t>(i);
          return CopyRegion{dst.at(rank) + C::dst(strip), src.at(rank) + C::src(strip), C::size(strip)};
        };
        copier.copyRoundRobin(warp, static_cast<int>(together < left ? together : left), regionAt, wait);
      }
      first += together;
    }
    copier.finish(warp, wait);
  }
};

template <class Body>
void checkBulkCopies(const Shape& launch) {
  using C = BulkCopies;
  Backend<> backend;
  auto dst = backend.allocate(1, C::count * C::strip, poisonByte);
  auto src = backend.allocate(1, 8192, 0);
  const auto data = randomBits<std::byte>(8192, 1);
  src.write(0, data);
  backend.launch(launch, Body{dst.window(), src.window(), backend.wait()});
  std::vector<std::byte> expected(C::count * C::strip, std::byte{poisonByte});
  for (std::size_t i = 0; i < C::count; ++i)
    std::memcpy(expected.data() + C::dst(i), data.data() + C::src(i), C::size(i));
  CHECK(firstDifference(dst.read(0), expected) == -1);
}

template <BulkCopyConfig shape>
void checkSeparateCopies() {
  checkBulkCopies<BulkCopiesBody<shape>>({1, 2, 1, sizeof(BulkScratch<shape>)});
}

TEST_CASE("bulk_copy: alignments, sizes and queues, with several configurations of the ring") {
  checkSeparateCopies<smallConfig>();
  checkSeparateCopies<BulkCopyConfig{.chunkBytes = 16, .chunks = 2, .prefetchDepth = 1}>();
  checkSeparateCopies<BulkCopyConfig{.chunkBytes = 512, .chunks = 5, .prefetchDepth = 4}>();
  checkSeparateCopies<BulkCopyConfig{.chunkBytes = 1024, .chunks = 7, .prefetchDepth = 1}>();
}

template <BulkCopyConfig shape>
void checkRoundRobin() {
  constexpr int warps = BulkRoundRobinBody<shape>::warps;
  checkBulkCopies<BulkRoundRobinBody<shape>>({1, 1, warps, warps * sizeof(BulkScratch<shape>)});
}

TEST_CASE("bulk_copy: several copies in round-robin order, through a queue per warp") {
  checkRoundRobin<smallConfig>();
  checkRoundRobin<BulkCopyConfig{.chunkBytes = 16, .chunks = 2, .prefetchDepth = 1, .quantum = 3}>();
  checkRoundRobin<BulkCopyConfig{.chunkBytes = 512, .chunks = 5, .prefetchDepth = 4, .quantum = 2}>();
  checkRoundRobin<BulkCopyConfig{.chunkBytes = 1024, .chunks = 7, .prefetchDepth = 1, .quantum = 100}>();
}

/// Copies of the same source to several destinations: some are not congruent to it, and there may be none.
template <BulkCopyConfig shape>
struct BulkToEachBody {
  Window<> dst;
  Window<> src;
  BoundedWait policy;

  static MSCCLPP_HOST_DEVICE int destinations(std::size_t group) { return static_cast<int>(group % 5); }
  /// The first strip of a group of copies, one for each destination.
  static MSCCLPP_HOST_DEVICE std::size_t firstStrip(std::size_t group) { return group * 4; }
  static MSCCLPP_HOST_DEVICE std::size_t offset(std::size_t group, int i) {
    return i == 2 ? group % 16 : BulkCopies::src(group) % 16;
  }

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    using C = BulkCopies;
    auto wait = policy;
    const auto block = grid.block();
    BulkCopier<shape> copier(block, *reinterpret_cast<BulkScratch<shape>*>(grid.sharedMemory()));
    for (std::size_t group = grid.blockIndex(); group < C::count / 4; group += grid.blockCount()) {
      const auto forEachDestination = [&](const auto& f) {
        for (int i = 0; i < destinations(group); ++i) {
          f(dst.at(rank) + (firstStrip(group) + static_cast<std::size_t>(i)) * C::strip + offset(group, i));
        }
      };
      copier.copyToEach(block, forEachDestination, src.at(rank) + C::src(group), C::size(group * 4), wait);
    }
    copier.finish(block, wait);
  }
};

TEST_CASE("bulk_copy: one source and several destinations") {
  using C = BulkCopies;
  constexpr BulkCopyConfig shape{.chunkBytes = 256, .chunks = 4, .prefetchDepth = 2, .destinations = 4};
  using Body = BulkToEachBody<shape>;
  Backend<> backend;
  auto dst = backend.allocate(1, C::count * C::strip, poisonByte);
  auto src = backend.allocate(1, 8192, 0);
  const auto data = randomBits<std::byte>(8192, 1);
  src.write(0, data);
  backend.launch({1, 2, 1, sizeof(BulkScratch<shape>)}, Body{dst.window(), src.window(), backend.wait()});
  std::vector<std::byte> expected(C::count * C::strip, std::byte{poisonByte});
  for (std::size_t group = 0; group < C::count / 4; ++group) {
    for (int i = 0; i < Body::destinations(group); ++i) {
      const std::size_t at =
          (Body::firstStrip(group) + static_cast<std::size_t>(i)) * C::strip + Body::offset(group, i);
      std::memcpy(expected.data() + at, data.data() + C::src(group), C::size(group * 4));
    }
  }
  CHECK(firstDifference(dst.read(0), expected) == -1);
}

/// Two copies of two chunks each; the second chunk of the first has the same destination as the first chunk of the
/// second. The final content shows their order, since CPU ranks store in the order of the queue.
template <BulkCopyConfig shape>
struct BulkOrderBody {
  Window<> dst;
  Window<> src;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    constexpr std::size_t chunk = shape.chunkBytes;
    auto wait = policy;
    const auto block = grid.block();
    BulkCopier<shape> copier(block, *reinterpret_cast<BulkScratch<shape>*>(grid.sharedMemory()));
    const auto regionAt = [&](int i) {
      const auto index = static_cast<std::size_t>(i);
      return CopyRegion{dst.at(rank) + index * chunk, src.at(rank) + 2 * index * chunk, 2 * chunk};
    };
    copier.copyRoundRobin(block, 2, regionAt, wait);
    copier.finish(block, wait);
  }
};

/// last: the index of the source chunk that must be at the destination of two of them.
template <BulkCopyConfig shape>
void checkRoundRobinOrder(std::size_t last) {
  constexpr std::size_t chunk = shape.chunkBytes;
  Backend<> backend;
  auto dst = backend.allocate(1, 3 * chunk, poisonByte);
  auto src = backend.allocate(1, 4 * chunk, 0);
  const auto data = randomBits<std::byte>(4 * chunk, 1);
  src.write(0, data);
  backend.launch({1, 1, 1, sizeof(BulkScratch<shape>)},
                 BulkOrderBody<shape>{dst.window(), src.window(), backend.wait()});
  const auto found = dst.read(0);
  CHECK(std::memcmp(found.data() + chunk, data.data() + last * chunk, chunk) == 0);
}

TEST_CASE("bulk_copy: copies are interleaved by the configured quantum") {
  if constexpr (!Backend<>::onGpu) {
    checkRoundRobinOrder<BulkCopyConfig{.chunkBytes = 64, .chunks = 4, .prefetchDepth = 2, .quantum = 1}>(1);
    checkRoundRobinOrder<BulkCopyConfig{.chunkBytes = 64, .chunks = 4, .prefetchDepth = 2, .quantum = 2}>(2);
  }
}

/// In each round both ranks fill their source, send it to the peer, signal, and check what they received.
template <BulkCopyConfig shape>
struct BulkExchangeBody {
  static constexpr std::size_t dataOffset = 64;
  Window<> memory;  // two counters; from dataOffset: data from the peer
  Window<> source;
  Window<> wrong;
  std::size_t words;
  int rounds;
  WaitControl* control;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    auto wait = policy;
    const int peer = 1 - rank;
    const auto block = grid.block();
    const auto counter = [&](int r) { return reinterpret_cast<std::uint64_t*>(memory.at(r)); };
    SemaphoreHandle semaphore{{}, counter(rank), counter(peer), counter(rank) + 1, control, waitTimeout, rank, peer};
    auto* own = reinterpret_cast<std::uint32_t*>(source.at(rank));
    const auto* received = reinterpret_cast<const std::uint32_t*>(memory.at(rank, dataOffset));
    std::uint32_t errors = 0;
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = block.rank(); i < words; i += block.size())
        own[i] = static_cast<std::uint32_t>(round * 1'000'000 + rank + 2 * i);
      block.sync();
      errors += !bulkCopy(block, *reinterpret_cast<BulkScratch<shape>*>(grid.sharedMemory()),
                          memory.at(peer, dataOffset), own, words * sizeof(std::uint32_t), wait);
      block.sync();
      if (block.rank() == 0) {
        semaphore.signal();
        errors += !semaphore.wait();
      }
      block.sync();
      for (std::size_t i = block.rank(); i < words; i += block.size())
        errors += received[i] != static_cast<std::uint32_t>(round * 1'000'000 + peer + 2 * i);
      block.sync();
      // Only after this may the peer overwrite the data.
      if (block.rank() == 0) {
        semaphore.signal();
        errors += !semaphore.wait();
      }
      block.sync();
    }
    reinterpret_cast<std::uint32_t*>(wrong.at(rank))[block.rank()] = errors;
  }
};

template <BulkCopyConfig shape>
void checkBulkExchange(std::size_t words, int rounds) {
  using Body = BulkExchangeBody<shape>;
  Backend<> backend;
  constexpr std::size_t threads = 2 * static_cast<std::size_t>(Backend<>::warpWidth);
  auto memory = backend.allocate(2, Body::dataOffset + words * sizeof(std::uint32_t), 0);
  auto source = backend.allocate(2, words * sizeof(std::uint32_t), 0);
  auto wrong = backend.allocate(2, threads * sizeof(std::uint32_t), poisonByte);
  backend.launch({2, 1, 2, sizeof(BulkScratch<shape>)}, Body{memory.window(), source.window(), wrong.window(), words,
                                                             rounds, backend.control(), backend.wait()});
  for (int rank = 0; rank < 2; ++rank)
    CHECK(wrong.template read<std::uint32_t>(rank) == std::vector<std::uint32_t>(threads, 0));
}

TEST_CASE("bulk_copy: data sent to a peer is visible after the signal") {
  checkBulkExchange<smallConfig>(1000, 30);
  checkBulkExchange<smallConfig>(3, 30);
  if constexpr (Backend<>::onGpu) checkBulkExchange<BulkCopyConfig{}>(1 << 20, 20);
}

}  // namespace mscclpp::test
