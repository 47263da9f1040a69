// Cases of basic/dynamic_parts.hpp: every part is taken once, by warps of several blocks, in consecutive jobs.
#pragma once

#include <doctest/doctest.h>

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/basic/dynamic_parts.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "tests/backend/backend.hpp"

namespace mscclpp::test {

/// Layout of the window: the counter, then a count for each part.
struct DynamicPartsBody {
  Window<> window;
  std::uint32_t parts;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    auto* const words = reinterpret_cast<std::uint64_t*>(window.at(rank));
    const auto warp = grid.warp();
    std::uint32_t nextExpected = 0;
    forEachDynamicPart(warp, words, parts, static_cast<std::uint32_t>(grid.blockCount() * grid.warpCount()),
                       [&](std::uint32_t part) {
                         // A part out of order counts 2.
                         const std::uint64_t count = part >= nextExpected ? 1 : 2;
                         nextExpected = part + 1;
                         if (warp.rank() == 0) {
                           arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(words + 1 + part, count);
                         }
                       });
  }
};

TEST_CASE("dynamic_parts: each part once, in ascending order, in consecutive jobs") {
  for (const std::uint32_t parts : {0u, 1u, 5u, 100u}) {
    CAPTURE(parts);
    constexpr int blocks = 3, warps = 2, jobs = 3;
    Backend<> backend;
    auto memory = backend.allocate(1, (1 + parts) * sizeof(std::uint64_t), 0);
    for (int job = 0; job < jobs; ++job) backend.launch({1, blocks, warps}, DynamicPartsBody{memory.window(), parts});
    std::vector<std::uint64_t> expected(1 + parts, jobs);
    expected[0] = jobs * (parts + blocks * warps);
    CHECK(memory.read<std::uint64_t>(0) == expected);
  }
}

/// Two jobs of different parts one after the other, without a reset of the counter.
struct ConsecutiveJobsBody {
  Window<> window;
  std::uint64_t first;  ///< the counter's value at the first job
  std::uint32_t parts[2];

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    auto* const words = reinterpret_cast<std::uint64_t*>(window.at(rank));
    const auto warp = grid.warp();
    const auto warps = static_cast<std::uint32_t>(grid.blockCount() * grid.warpCount());
    // The next job starts once every warp has taken its ticket beyond the last part of this one.
    auto& barrier = *reinterpret_cast<GridBarrier*>(words + 1);
    BoundedWait wait(nullptr, waitTimeout);
    std::uint64_t begin = first;
    for (const std::uint32_t count : parts) {
      forEachDynamicPartFrom(warp, words, begin, count, [&](std::uint32_t part) {
        if (warp.rank() == 0) {
          arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(words + 2 + part, std::uint64_t{1});
        }
      });
      barrier.sync(grid, wait);
      begin += count + warps;
    }
  }
};

TEST_CASE("dynamic_parts: consecutive jobs of different lengths on one counter") {
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{1000}, (std::uint64_t{1} << 32) - 10}) {
    CAPTURE(first);
    Backend<> backend;
    auto memory = backend.allocate(1, 22 * sizeof(std::uint64_t), 0);
    memory.write(0, std::vector<std::uint64_t>{first});
    backend.launch({1, 3, 2}, ConsecutiveJobsBody{memory.window(), first, {20, 7}});
    std::vector<std::uint64_t> counts = memory.template read<std::uint64_t>(0);
    CHECK(counts[0] == first + 20 + 7 + 2 * 6);
    for (std::size_t part = 0; part < 20; ++part) CHECK(counts[2 + part] == (part < 7 ? 2 : 1));
  }
}

}  // namespace mscclpp::test
