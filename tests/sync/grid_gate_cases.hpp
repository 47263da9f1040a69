// Cases of sync/grid_gate.hpp: any number of openers and of blocks that only wait.
#pragma once

#include <doctest/doctest.h>

#include "mscclpp/sync/grid_gate.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

struct GridGateBody {
  static constexpr std::size_t dataOffset = 64;
  Window<> memory;  // the gate; from dataOffset: for each round a word per block, and then results
  std::uint32_t openers;
  std::uint64_t first;  // number of the first round, of as many as there are openers
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const auto block = grid.block();
    auto wait = policy;
    auto& gate = *reinterpret_cast<GridGate*>(memory.at(rank));
    auto* const data = reinterpret_cast<std::uint32_t*>(memory.at(rank, dataOffset));
    const auto index = static_cast<std::uint32_t>(grid.blockIndex());
    const auto blocks = static_cast<std::uint32_t>(grid.blockCount());
    std::uint32_t wrong = 0;
    // The openers of a round are fewer from round to round, and write what all threads of all blocks read behind it.
    for (std::uint32_t round = 0; round < openers; ++round) {
      std::uint32_t* const words = data + round * blocks;
      const std::uint32_t some = openers - round;
      if (index < some && block.rank() == block.size() - 1) words[index] = round + 1;
      if (!gate.pass(grid, some, first + round, wait)) ++wrong;
      for (std::uint32_t i = 0; i < some; ++i) wrong += words[i] != round + 1;
    }
    data[openers * blocks + index * static_cast<std::uint32_t>(block.size()) +
         static_cast<std::uint32_t>(block.rank())] = wrong;
  }
};

TEST_CASE("grid_gate: the first blocks open it for all, again and again, also across an overflow of the number") {
  Backend<2> backend;
  constexpr int most = Backend<2>::onGpu ? 100 : 6;
  for (const std::uint64_t first : {std::uint64_t{1}, ~std::uint64_t{0} - 1}) {
    for (const int blocks : {1, 2, 5, most}) {
      for (const int openers : {1, (blocks + 1) / 2, blocks}) {
        CAPTURE(blocks);
        CAPTURE(openers);
        auto memory = backend.allocate(1, 1 << 17, 0);
        memory.write(0, std::vector<std::uint64_t>{0, first - 1});
        backend.launch({1, blocks, 1},
                       GridGateBody{memory.window(), static_cast<std::uint32_t>(openers), first, backend.wait()});
        const auto after = memory.read<std::uint32_t>(0);
        CHECK(after[0] == 0);
        const auto results = after.begin() + GridGateBody::dataOffset / 4 + openers * blocks;
        const auto threads = static_cast<std::size_t>(blocks * Backend<2>::warpWidth);
        CHECK(std::vector<std::uint32_t>(results, results + static_cast<std::ptrdiff_t>(threads)) ==
              std::vector<std::uint32_t>(threads, 0));
      }
    }
  }
}

struct AbsentOpenerBody {
  Window<> memory;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (grid.blockIndex() == 1) return;
    auto wait = policy;
    reinterpret_cast<GridGate*>(memory.at(rank))->pass(grid, 2, 7, wait);
  }
};

TEST_CASE("grid_gate: a wait for an opener that does not arrive leaves a record") {
  Backend<> backend;
  auto memory = backend.allocate(1, 64, 0);
  const auto record = backend.run({1, 3, 1}, AbsentOpenerBody{memory.window(), backend.wait(30'000'000)});
  REQUIRE(record);
  CHECK(record->operation == WaitOperation::GridBarrier);
  CHECK(record->block != 1);
  CHECK(record->expected == 7);
  CHECK(record->seen == 0);
}

}  // namespace mscclpp::test
