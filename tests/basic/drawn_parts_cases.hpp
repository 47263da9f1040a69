// Cases of basic/drawn_parts.hpp: every part is drawn once, by warps of several blocks, job after job.
#pragma once

#include <doctest/doctest.h>

#include "backend/backend.hpp"
#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/basic/drawn_parts.hpp"

namespace mscclpp::test {

/// Layout of the window: the counter, then a count for each part.
struct DrawnPartsBody {
  Window<> window;
  std::uint32_t parts;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    auto* const words = reinterpret_cast<std::uint64_t*>(window.at(rank));
    const auto warp = grid.warp();
    std::uint32_t least = 0;
    forEachDrawnPart(warp, words, parts, static_cast<std::uint32_t>(grid.blockCount() * grid.warpCount()),
                     [&](std::uint32_t part) {
                       // Two for a part out of order, so that the count shows it.
                       const std::uint64_t count = part >= least ? 1 : 2;
                       least = part + 1;
                       if (warp.rank() == 0) {
                         arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(words + 1 + part, count);
                       }
                     });
  }
};

TEST_CASE("drawn_parts: each part once, in ascending order, job after job") {
  for (const std::uint32_t parts : {0u, 1u, 5u, 100u}) {
    CAPTURE(parts);
    constexpr int blocks = 3, warps = 2, jobs = 3;
    Backend<> backend;
    auto memory = backend.allocate(1, (1 + parts) * sizeof(std::uint64_t), 0);
    for (int job = 0; job < jobs; ++job) backend.launch({1, blocks, warps}, DrawnPartsBody{memory.window(), parts});
    std::vector<std::uint64_t> expected(1 + parts, jobs);
    expected[0] = jobs * (parts + blocks * warps);
    CHECK(memory.read<std::uint64_t>(0) == expected);
  }
}

}  // namespace mscclpp::test
