// The cases of basic/ on a GPU, and the groups that only a GPU has.
#include "bulk_cases.hpp"
#include "bulk_copy_cases.hpp"
#include "copy_cases.hpp"
#include "dynamic_parts_cases.hpp"
#include "element_cases.hpp"
#include "group_cases.hpp"
#include "reduce_op_cases.hpp"
#include "source_sink_cases.hpp"
#include "trace_cases.hpp"
#include "wait_cases.hpp"

namespace mscclpp::test {

template <int Width>
struct TileBody {
  Window<> out;
  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    WarpBody::run(gpu::WarpTile<Width>(), reinterpret_cast<std::uint32_t*>(out.at(rank)) + grid.block().rank());
  }
};

template <int Width>
void checkTiles() {
  GpuBackend backend;
  auto out = backend.allocate(1, 64 * sizeof(std::uint32_t), poisonByte);
  backend.launch({1, 1, 2}, TileBody<Width>{out.window()});
  CHECK(out.read<std::uint32_t>(0) == std::vector<std::uint32_t>(64, 0));
}

TEST_CASE("group: tiles of a warp") {
  checkTiles<1>();
  checkTiles<2>();
  checkTiles<8>();
  checkTiles<16>();
  checkTiles<32>();
}

/// Warps 0, 1 to 2, and 3 of a block sync different numbers of times, which would deadlock if they synced the block.
struct SpanBody {
  Window<> slots;
  Window<> seen;
  static constexpr int rounds = 20;

  static MSCCLPP_HOST_DEVICE int roundsOf(int first) { return (first + 1) * rounds / 4; }

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    auto* slot = reinterpret_cast<int*>(slots.at(rank));
    auto* out = reinterpret_cast<int*>(seen.at(rank));
    const int warp = grid.warpIndex();
    const int first = warp == 2 ? 1 : warp;
    const gpu::WarpRange span(first, first == 1 ? 2 : 1, first + 1);
    NeighbourBody::run(span, slot + first * 32, out + first * 32 * rounds, roundsOf(first));
  }
};

TEST_CASE("group: ranges of warps sync independently") {
  GpuBackend backend;
  constexpr int rounds = SpanBody::rounds;
  auto slots = backend.allocate(1, 128 * sizeof(int), poisonByte);
  auto seen = backend.allocate(1, 128 * rounds * sizeof(int), 0);
  backend.launch({1, 1, 4}, SpanBody{slots.window(), seen.window()});
  std::vector<int> expected(128 * rounds, 0);
  for (int first : {0, 1, 3}) {
    const int size = first == 1 ? 64 : 32;
    for (int round = 0; round < SpanBody::roundsOf(first); ++round) {
      for (int r = 0; r < size; ++r) expected[first * 32 * rounds + round * size + r] = round * 1000 + (r + 1) % size;
    }
  }
  CHECK(seen.read<int>(0) == expected);
}

}  // namespace mscclpp::test
