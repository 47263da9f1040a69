// Cases of basic/dynamic_parts.hpp: every part is taken once, by warps of several blocks, in consecutive jobs.
#pragma once

#include <doctest/doctest.h>

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/basic/dynamic_parts.hpp"
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

}  // namespace mscclpp::test
