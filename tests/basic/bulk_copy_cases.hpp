// Cases of basic/bulk_copy.hpp: every alignment of both pointers, sizes round those of pieces, queues of copies, and copies to peers.
#pragma once

#include <doctest/doctest.h>

#include "backend/backend.hpp"
#include "backend/data.hpp"
#include "mscclpp/basic/bulk_copy.hpp"
#include "mscclpp/sync/semaphore.hpp"

namespace mscclpp::test {

inline constexpr BulkShape smallShape{.bytes = 256, .pieces = 4, .ahead = 2};

/// One copy a strip: alignments and size follow from its number. All copies of a block go through one queue.
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

template <BulkShape shape>
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

template <BulkShape shape>
void checkBulkCopies() {
  using C = BulkCopies;
  Backend<> backend;
  auto dst = backend.allocate(1, C::count * C::strip, poisonByte);
  auto src = backend.allocate(1, 8192, 0);
  const auto data = randomBits<std::byte>(8192, 1);
  src.write(0, data);
  backend.launch({1, 2, 1, sizeof(BulkScratch<shape>)},
                 BulkCopiesBody<shape>{dst.window(), src.window(), backend.wait()});
  std::vector<std::byte> expected(C::count * C::strip, std::byte{poisonByte});
  for (std::size_t i = 0; i < C::count; ++i)
    std::memcpy(expected.data() + C::dst(i), data.data() + C::src(i), C::size(i));
  CHECK(firstDifference(dst.read(0), expected) == -1);
}

TEST_CASE("bulk_copy: alignments, sizes and queues, with rings of several shapes") {
  checkBulkCopies<smallShape>();
  checkBulkCopies<BulkShape{.bytes = 16, .pieces = 2, .ahead = 1}>();
  checkBulkCopies<BulkShape{.bytes = 512, .pieces = 5, .ahead = 4}>();
  checkBulkCopies<BulkShape{.bytes = 1024, .pieces = 7, .ahead = 1}>();
}

/// Rounds of: each rank fills its source, sends it to the other one of two, signals; and checks what has come.
template <BulkShape shape>
struct BulkExchangeBody {
  static constexpr std::size_t dataOffset = 64;
  Window<> memory;  // two counters; from dataOffset: what the peer sends
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
    SemaphoreHandle semaphore{counter(rank), counter(peer), counter(rank) + 1, control, waitTimeout, rank, peer};
    auto* own = reinterpret_cast<std::uint32_t*>(source.at(rank));
    const auto* inbox = reinterpret_cast<const std::uint32_t*>(memory.at(rank, dataOffset));
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
        errors += inbox[i] != static_cast<std::uint32_t>(round * 1'000'000 + peer + 2 * i);
      block.sync();
      // The peer may overwrite what was read here only after this.
      if (block.rank() == 0) {
        semaphore.signal();
        errors += !semaphore.wait();
      }
      block.sync();
    }
    reinterpret_cast<std::uint32_t*>(wrong.at(rank))[block.rank()] = errors;
  }
};

template <BulkShape shape>
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

TEST_CASE("bulk_copy: what was sent to a peer is there after the signal") {
  checkBulkExchange<smallShape>(1000, 30);
  checkBulkExchange<smallShape>(3, 30);
  if constexpr (Backend<>::onGpu) checkBulkExchange<BulkShape{}>(1 << 20, 20);
}

}  // namespace mscclpp::test
