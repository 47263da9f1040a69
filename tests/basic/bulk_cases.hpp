// Cases of basic/bulk.hpp: bulk loads, stores and reductions, and the barriers that wait for them.
#pragma once

#include <doctest/doctest.h>

#include <type_traits>

#include "mscclpp/basic/bulk.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

/// Rounds of: one thread loads a chunk of rank's memory, all threads flip its bits, one thread stores it to the next
/// rank's.
struct FlipBody {
  static constexpr std::size_t chunkBytes = 1024;
  struct Scratch {
    alignas(128) std::byte chunk[chunkBytes];
    BulkBarrier loaded;
  };
  Window<> from;
  Window<> to;
  int ranks;
  int rounds;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    auto& scratch = *reinterpret_cast<Scratch*>(grid.sharedMemory());
    const auto block = grid.block();
    auto wait = policy;
    std::uint32_t phase = 0;
    if (block.rank() == 0) scratch.loaded.init();
    block.sync();
    for (int round = 0; round < rounds; ++round) {
      const std::size_t offset = (static_cast<std::size_t>(round) * grid.blockCount() + grid.blockIndex()) * chunkBytes;
      if (block.rank() == 0) {
        scratch.loaded.arriveAndExpect(chunkBytes);
        bulkLoad(scratch.chunk, from.at(rank, offset), chunkBytes, scratch.loaded);
      }
      if (!scratch.loaded.wait(phase, wait)) return;
      for (std::size_t i = block.rank(); i < chunkBytes; i += block.size()) scratch.chunk[i] = ~scratch.chunk[i];
      bulkFence();
      block.sync();
      if (block.rank() == 0) {
        bulkStore(to.at((rank + 1) % ranks, offset), scratch.chunk, chunkBytes);
        bulkStoreCommit();
        bulkStoreWaitSource();
      }
      block.sync();
    }
    if (block.rank() == 0) {
      bulkStoreWait();
      scratch.loaded.invalidate();
    }
  }
};

TEST_CASE("bulk: data passes through shared memory to the next rank in many rounds") {
  constexpr int ranks = 3, blocks = 2, rounds = 20;
  constexpr std::size_t bytes = FlipBody::chunkBytes * blocks * rounds;
  Backend<> backend;
  auto from = backend.allocate(ranks, bytes, 0);
  auto to = backend.allocate(ranks, bytes + 64, poisonByte);
  std::vector<std::vector<std::byte>> data;
  for (int rank = 0; rank < ranks; ++rank) {
    data.push_back(randomBits<std::byte>(bytes, static_cast<unsigned>(rank)));
    from.write(rank, data.back());
  }
  backend.launch({ranks, blocks, 2, sizeof(FlipBody::Scratch)},
                 FlipBody{from.window(), to.window(), ranks, rounds, backend.wait()});
  for (int rank = 0; rank < ranks; ++rank) {
    auto expected = data[static_cast<std::size_t>((rank + ranks - 1) % ranks)];
    for (auto& byte : expected) byte = ~byte;
    expected.resize(bytes + 64, std::byte{poisonByte});
    CHECK(firstDifference(to.read(rank), expected) == -1);
  }
}

/// All ranks concurrently reduce their elements into those of rank 0.
template <class T, BulkRedOp op>
struct BulkReduceBody {
  Window<> from;
  Window<> to;
  int count;  // per block
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const auto block = grid.block();
    auto* staged = reinterpret_cast<T*>(grid.sharedMemory());
    const std::size_t offset = static_cast<std::size_t>(grid.blockIndex()) * count;
    const auto* own = reinterpret_cast<const T*>(from.at(rank)) + offset;
    for (int i = block.rank(); i < count; i += block.size()) staged[i] = own[i];
    bulkFence();
    block.sync();
    if (block.rank() != 0) return;
    bulkReduceStore<T, op>(reinterpret_cast<T*>(to.at(0)) + offset, staged,
                           static_cast<std::uint32_t>(count * sizeof(T)));
    bulkStoreCommit();
    bulkStoreWait<0>();
  }
};

/// The data are small integers, negative ones too for signed types, whose sums are exact in every type.
template <class T, BulkRedOp op>
void checkBulkReduce() {
  using Op = typename detail::OperatorOf<op>::Type;
  constexpr int ranks = 3, blocks = 2, count = 128;
  const auto element = [](int value) {
    return narrow<T>(static_cast<Accumulator<T>>(std::is_unsigned_v<T> ? value + 50 : value));
  };
  Backend<> backend;
  auto from = backend.allocate(ranks, blocks * count * sizeof(T), 0);
  auto to = backend.allocate(1, (blocks * count + 8) * sizeof(T), 0);
  std::vector<T> expected(blocks * count + 8);
  for (int i = 0; i < blocks * count + 8; ++i) expected[static_cast<std::size_t>(i)] = element(i % 5 - 2);
  to.write(0, expected);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<T> data(blocks * count);
    for (int i = 0; i < blocks * count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      data[at] = element((i * 7 + rank * 3) % 23 - 11);
      expected[at] = narrow<T>(Op::combine(widen<T>(expected[at]), widen<T>(data[at])));
    }
    from.write(rank, data);
  }
  backend.launch({ranks, blocks, 1, count * sizeof(T)},
                 BulkReduceBody<T, op>{from.window(), to.window(), count, backend.wait()});
  CHECK(firstDifference(to.template read<T>(0), expected) == -1);
}

template <class T>
void checkBulkReduces() {
  checkBulkReduce<T, BulkRedOp::Add>();
  if constexpr (!std::is_same_v<T, float> && !std::is_same_v<T, double>) {
    checkBulkReduce<T, BulkRedOp::Min>();
    checkBulkReduce<T, BulkRedOp::Max>();
  }
}

TEST_CASE("bulk: reductions into memory, for every supported type and operator") {
  checkBulkReduces<f16>();
  checkBulkReduces<bf16>();
  checkBulkReduces<float>();
  checkBulkReduces<double>();
  checkBulkReduces<std::int32_t>();
  checkBulkReduces<std::uint32_t>();
  checkBulkReduces<std::int64_t>();
  checkBulkReduces<std::uint64_t>();
}

/// Polls a barrier while its phase is incomplete: bit i of the result is what poll() returns after step i.
struct BarrierStepsBody {
  Window<> out;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (grid.block().rank() != 0) return;
    struct Scratch {
      alignas(128) std::byte chunk[64];
      BulkBarrier barrier;
    };
    auto& scratch = *reinterpret_cast<Scratch*>(grid.sharedMemory());
    auto& barrier = scratch.barrier;
    const std::byte* from = out.at(rank, 64);
    std::uint32_t seen = 0;
    int step = 0;
    const auto note = [&](std::uint32_t phase) { seen |= static_cast<std::uint32_t>(barrier.poll(phase)) << step++; };
    barrier.init(2);
    note(0);  // 0: no arrival
    note(1);  // 1: the phase before the first has completed
    barrier.arrive();
    note(0);  // 2: one of two arrivals
    barrier.arrive();
    note(0);  // 3: both
    note(1);  // 4: the next phase is incomplete
    barrier.expect(48);
    barrier.arrive();
    barrier.arrive();
    note(1);  // 5: bytes are missing
    bulkLoad(scratch.chunk, from, 32, barrier);
    bulkLoad(scratch.chunk + 32, from, 16, barrier);
    std::uint32_t phase = 1;
    const bool ended = barrier.wait(phase);
    seen |= static_cast<std::uint32_t>(ended && phase == 0) << step++;  // 6
    note(1);                                                            // 7: all bytes
    note(0);                                                            // 8
    barrier.invalidate();
    *reinterpret_cast<std::uint32_t*>(out.at(rank)) = seen;
  }
};

TEST_CASE("bulk: a phase completes with the last arrival and the last byte, not before") {
  Backend<> backend;
  auto out = backend.allocate(1, 128, 0);
  backend.launch({1, 1, 1, 256}, BarrierStepsBody{out.window()});
  CHECK(out.read<std::uint32_t>(0)[0] == 0b011001010);
}

/// More bytes are expected than are copied.
struct MissingBytesBody {
  Window<> from;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (grid.block().rank() != 0) return;
    auto wait = policy;
    auto* chunk = grid.sharedMemory();
    auto& barrier = *reinterpret_cast<BulkBarrier*>(chunk + 64);
    barrier.init();
    barrier.arriveAndExpect(64);
    bulkLoad(chunk, from.at(rank), 48, barrier);
    std::uint32_t phase = 0;
    const bool ended = barrier.wait(phase, wait);
    // After a failed wait the phase is unchanged.
    *reinterpret_cast<std::uint32_t*>(from.at(rank, 64)) = ended || barrier.poll(phase) ? 1 : 2;
  }
};

TEST_CASE("bulk: a wait for missing bytes leaves a record") {
  Backend<> backend;
  auto from = backend.allocate(1, 128, 0);
  const auto record = backend.run({1, 1, 1, 128}, MissingBytesBody{from.window(), backend.wait(30'000'000)});
  REQUIRE(record);
  CHECK(record->operation == WaitOperation::Barrier);
  CHECK(record->outcome == WaitOutcome::Deadline);
  CHECK(from.read<std::uint32_t>(0)[16] == 2);
}

}  // namespace mscclpp::test
