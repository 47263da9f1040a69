// Cases of sync/grid_barrier.hpp: any number of blocks, and overflow of the counters.
#pragma once

#include <doctest/doctest.h>

#include "mscclpp/sync/grid_barrier.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

struct GridBarrierBody {
  static constexpr std::size_t dataOffset = 64;
  Window<> memory;  // the barrier; from dataOffset: a word per thread, and as many for results
  int rounds;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const auto block = grid.block();
    auto wait = policy;
    auto& barrier = *reinterpret_cast<GridBarrier*>(memory.at(rank));
    auto* data = reinterpret_cast<std::uint32_t*>(memory.at(rank, dataOffset));
    const int threads = grid.blockCount() * block.size();
    const int own = grid.blockIndex() * block.size() + block.rank();
    std::uint32_t wrong = 0;
    for (int round = 1; round <= rounds; ++round) {
      data[own] = round;
      if (!barrier.sync(grid, wait)) ++wrong;
      for (int i = 0; i < threads; ++i) wrong += data[i] != static_cast<std::uint32_t>(round);
      if (!barrier.sync(grid, wait)) ++wrong;
    }
    data[threads + own] = wrong;
  }
};

TEST_CASE("grid_barrier: different numbers of blocks on one barrier, across its overflow") {
  Backend<2> backend;
  const int rounds = 50;
  auto memory = backend.allocate(1, 1 << 17, 0);
  std::uint32_t generation = 0xfffffff0u;
  memory.write(0, std::vector<std::uint32_t>{0, generation});
  for (int blocks : {1, 8, 3, Backend<2>::onGpu ? 100 : 6, 2}) {
    backend.launch({1, blocks, 1}, GridBarrierBody{memory.window(), rounds, backend.wait()});
    const auto after = memory.read<std::uint32_t>(0);
    generation += 2 * rounds;
    CHECK(after[0] == 0);
    CHECK(after[1] == generation);
    const auto threads = static_cast<std::size_t>(blocks * Backend<2>::warpWidth);
    const auto results = after.begin() + GridBarrierBody::dataOffset / 4 + static_cast<std::ptrdiff_t>(threads);
    CHECK(std::vector<std::uint32_t>(results, results + static_cast<std::ptrdiff_t>(threads)) ==
          std::vector<std::uint32_t>(threads, 0));
  }
}

struct AbsentBlockBody {
  Window<> memory;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (grid.blockIndex() == 1) return;
    auto wait = policy;
    reinterpret_cast<GridBarrier*>(memory.at(rank))->sync(grid, wait);
  }
};

TEST_CASE("grid_barrier: a wait for a block that does not arrive leaves a record") {
  Backend<> backend;
  auto memory = backend.allocate(1, 64, 0);
  const auto record = backend.run({1, 3, 1}, AbsentBlockBody{memory.window(), backend.wait(30'000'000)});
  REQUIRE(record);
  CHECK(record->operation == WaitOperation::GridBarrier);
  CHECK(record->block != 1);
  CHECK(record->expected == 1);
  CHECK(record->seen == 0);
}

}  // namespace mscclpp::test
