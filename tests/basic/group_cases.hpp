// Cases of basic/group.hpp and emulation/group.hpp: indices, sync(), and exchanges of registers in warps.
#pragma once

#include <doctest/doctest.h>

#include "mscclpp/basic/concepts.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

/// Each thread stores its indices.
struct ThreadIndicesBody {
  struct ThreadIndices {
    int blockIndex, blockCount, blockRank, blockSize, warpIndex, warpCount, warpRank, warpSize;
  };
  Window<> threadIndices;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const auto block = grid.block();
    const auto warp = grid.warp();
    auto* to = reinterpret_cast<ThreadIndices*>(threadIndices.at(rank));
    to[grid.blockIndex() * block.size() + block.rank()] =
        ThreadIndices{grid.blockIndex(), grid.blockCount(), block.rank(), block.size(),
                      grid.warpIndex(),  grid.warpCount(),  warp.rank(),  warp.size()};
  }
};

TEST_CASE("group: thread, warp and block indices") {
  Backend<> backend;
  constexpr int width = Backend<>::warpWidth;
  const Shape shape{2, 3, 2};
  const int threads = shape.warps * width;
  auto threadIndices =
      backend.allocate(shape.ranks, sizeof(ThreadIndicesBody::ThreadIndices) * shape.blocks * threads, poisonByte);
  backend.launch(shape, ThreadIndicesBody{threadIndices.window()});
  for (int rank = 0; rank < shape.ranks; ++rank) {
    std::vector<int> expected;
    for (int b = 0; b < shape.blocks; ++b) {
      for (int t = 0; t < threads; ++t) {
        for (int value : {b, shape.blocks, t, threads, t / width, shape.warps, t % width, width})
          expected.push_back(value);
      }
    }
    CHECK(threadIndices.read<int>(rank) == expected);
  }
}

/// In each round, each thread reads what its neighbour wrote before the sync.
struct NeighbourBody {
  Window<> slots;
  Window<> seen;
  int rounds;

  template <class Group>
  static MSCCLPP_HOST_DEVICE void run(const Group& group, int* slot, int* out, int rounds) {
    for (int round = 0; round < rounds; ++round) {
      slot[group.rank()] = round * 1000 + group.rank();
      group.sync();
      out[round * group.size() + group.rank()] = slot[(group.rank() + 1) % group.size()];
      group.sync();
    }
  }
  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const auto block = grid.block();
    const auto warp = grid.warp();
    const int threads = block.size();
    auto* slot = reinterpret_cast<int*>(slots.at(rank));
    auto* out = reinterpret_cast<int*>(seen.at(rank));
    run(block, slot, out, rounds);
    run(warp, slot + grid.warpIndex() * warp.size(), out + rounds * threads + grid.warpIndex() * rounds * warp.size(),
        rounds);
  }
};

TEST_CASE("group: sync() makes writes visible within a block and a warp") {
  Backend<> backend;
  constexpr int width = Backend<>::warpWidth;
  const int rounds = 50;
  const Shape shape{1, 1, 3};
  const int threads = shape.warps * width;
  auto slots = backend.allocate(1, threads * sizeof(int), poisonByte);
  auto seen = backend.allocate(1, 2 * rounds * threads * sizeof(int), poisonByte);
  backend.launch(shape, NeighbourBody{slots.window(), seen.window(), rounds});
  std::vector<int> expected;
  const auto expect = [&](int size) {
    for (int round = 0; round < rounds; ++round) {
      for (int r = 0; r < size; ++r) expected.push_back(round * 1000 + (r + 1) % size);
    }
  };
  expect(threads);
  for (int w = 0; w < shape.warps; ++w) expect(width);
  CHECK(seen.read<int>(0) == expected);
}

/// Two spans of warps of each block sync different numbers of times, and each runs rounds between a control warp and
/// its workers.
struct WarpSpansBody {
  static constexpr int rounds = 12;
  static constexpr int firstWarps = 2;  // in the first span, of warps 0 and 1; the others are in the second

  struct ThreadResult {
    int isMember, blockIndex, blockCount, blockRank, blockSize, warpIndex, warpCount, warpRank, workers, wrong;
  };
  Window<> results;
  Window<> slots;

  /// Returns the number of wrong values that this thread read.
  template <class GridType>
  static MSCCLPP_HOST_DEVICE int run(const GridType& grid, int* slot, int repetitions) {
    const auto neighbours = [&](const auto& group) {
      int wrong = 0;
      for (int round = 0; round < repetitions; ++round) {
        slot[group.rank()] = round * 1000 + group.rank();
        group.sync();
        const int next = (group.rank() + 1) % group.size();
        wrong += slot[next] != round * 1000 + next;
        group.sync();
      }
      return wrong;
    };
    int wrong = neighbours(grid.block());
    const auto workers = grid.workers();
    if (!grid.isControlWarp()) wrong += neighbours(workers);
    grid.block().sync();
    // The control warp writes a number for the workers, and they return it. Barriers 0 and 1: ready; 2 and 3: done.
    int* const shared = slot;
    int* const returned = slot + 1;
    for (int round = 0; round < repetitions; ++round) {
      if (grid.isControlWarp()) {
        if (grid.warp().rank() == 0) *shared = round;
        grid.namedBarrierArrive(round % 2);
        grid.namedBarrierWait(2 + round % 2);
        for (int w = 0; w < workers.size(); ++w) wrong += returned[w] != round + w;
        grid.warp().sync();
      } else {
        grid.namedBarrierWait(round % 2);
        returned[workers.rank()] = *shared + workers.rank();
        grid.namedBarrierArrive(2 + round % 2);
      }
    }
    grid.block().sync();
    return wrong;
  }

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const int width = grid.warp().size();
    const auto first = grid.warps(0, firstWarps);
    const auto second = grid.warps(firstWarps, grid.warpCount() - firstWarps, BarrierIds{10});
    const int threads = grid.block().size();
    int* const slot = reinterpret_cast<int*>(slots.at(rank)) + grid.blockIndex() * (threads + 2);
    auto* const result =
        reinterpret_cast<ThreadResult*>(results.at(rank)) + grid.blockIndex() * threads + grid.block().rank();
    const auto describe = [&](const auto& span, int wrong) {
      *result = {first.isMember() + 2 * second.isMember(),
                 span.blockIndex(),
                 span.blockCount(),
                 span.block().rank(),
                 span.block().size(),
                 span.warpIndex(),
                 span.warpCount(),
                 span.warp().rank(),
                 span.workers().size(),
                 wrong};
    };
    if (first.isMember()) {
      describe(first, run(first, slot, rounds));
    } else {
      describe(second, run(second, slot + firstWarps * width + 1, 2 * rounds));
    }
  }
};

TEST_CASE("group: spans of warps are grids of their own") {
  Backend<> backend;
  constexpr int width = Backend<>::warpWidth;
  const Shape shape{1, 2, 5};
  const int threads = shape.warps * width;
  using ThreadResult = WarpSpansBody::ThreadResult;
  auto results = backend.allocate(1, sizeof(ThreadResult) * shape.blocks * threads, poisonByte);
  auto slots = backend.allocate(1, sizeof(int) * shape.blocks * (threads + 2), poisonByte);
  backend.launch(shape, WarpSpansBody{results.window(), slots.window()});
  std::vector<int> expected;
  for (int b = 0; b < shape.blocks; ++b) {
    for (int t = 0; t < threads; ++t) {
      const bool inFirst = t / width < WarpSpansBody::firstWarps;
      const int start = inFirst ? 0 : WarpSpansBody::firstWarps;
      const int warps = inFirst ? WarpSpansBody::firstWarps : shape.warps - WarpSpansBody::firstWarps;
      for (int value : {inFirst ? 1 : 2, b, shape.blocks, t - start * width, warps * width, t / width - start, warps,
                        t % width, (warps - 1) * width, 0})
        expected.push_back(value);
    }
  }
  CHECK(results.read<int>(0) == expected);
}

/// Shuffles from every lane and to the next, and votes in which each lane in turn differs.
struct WarpBody {
  Window<> out;

  template <class Warp>
  static MSCCLPP_HOST_DEVICE void run(const Warp& warp, std::uint32_t* to) {
    const int lane = warp.rank();
    const auto valueOf = [](int source) { return static_cast<std::uint32_t>(source * 3 + 7); };
    std::uint32_t wrong = 0;
    for (int source = 0; source < Warp::width; ++source) {
      if (warp.shuffle(valueOf(lane), source) != valueOf(source)) wrong |= 1;
      if (warp.all(lane != source)) wrong |= 2;
      if (!warp.any(lane == source)) wrong |= 4;
    }
    const int next = (lane + 1) % Warp::width;
    if (warp.shuffle(valueOf(lane), next) != valueOf(next)) wrong |= 8;
    if (!warp.all(true)) wrong |= 16;
    if (warp.any(false)) wrong |= 32;
    if (warp.size() != Warp::width || lane < 0 || lane >= Warp::width) wrong |= 64;
    warp.sync();
    *to = wrong;
  }
  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    run(grid.warp(), reinterpret_cast<std::uint32_t*>(out.at(rank)) + grid.block().rank());
  }
};

template <class BackendType>
void checkWarps(int warps) {
  BackendType backend;
  const auto threads = static_cast<std::size_t>(warps * BackendType::warpWidth);
  auto out = backend.allocate(1, threads * sizeof(std::uint32_t), poisonByte);
  backend.launch({1, 1, warps}, WarpBody{out.window()});
  CHECK(out.template read<std::uint32_t>(0) == std::vector<std::uint32_t>(threads, 0));
}

TEST_CASE("group: warps shuffle and vote") {
  checkWarps<Backend<1>>(3);
  checkWarps<Backend<4>>(3);
  checkWarps<Backend<8>>(2);
  checkWarps<Backend<16>>(1);
}

}  // namespace mscclpp::test
