// The cases of basic/ on a GPU, and the groups that only a GPU has.
#include <cooperative_groups.h>

#include "bulk_cases.hpp"
#include "bulk_copy_cases.hpp"
#include "copy_cases.hpp"
#include "dynamic_parts_cases.hpp"
#include "element_cases.hpp"
#include "group_cases.hpp"
#include "mscclpp/basic/cooperative_group.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "reduce_op_cases.hpp"
#include "scaled_source_cases.hpp"
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

/// Counts, for each index, the blocks that have it in the whole launch, and in a part of it.
__global__ void blockIndicesKernel(int* whole, int* part, int* isMember, int first, int count) {
  const gpu::Grid grid;
  const gpu::Grid some(first, count);
  if (threadIdx.x != 0) return;
  atomicAdd(&whole[grid.blockIndex()], grid.blockCount());
  if (some.isMember()) atomicAdd(&part[some.blockIndex()], some.blockCount());
  if (some.warps(0, 1).isMember() == some.isMember() && !some.warps(1, 1).isMember()) atomicAdd(isMember, 1);
}

TEST_CASE("group: the blocks of a launch of several dimensions are numbered") {
  GpuBackend backend;
  for (const dim3 dimensions : {dim3(24), dim3(1, 24), dim3(4, 6), dim3(2, 3, 4), dim3(1, 1, 24)}) {
    CAPTURE(dimensions.x);
    CAPTURE(dimensions.y);
    auto counts = backend.allocate(1, 64 * sizeof(int), 0);
    auto* const to = reinterpret_cast<int*>(counts.window().at(0));
    blockIndicesKernel<<<dimensions, 32>>>(to, to + 24, to + 48, 5, 11);
    checkCuda(cudaGetLastError(), "launch");
    std::vector<int> expected(64, 0);
    std::fill_n(expected.begin(), 24, 24);
    std::fill_n(expected.begin() + 24, 11, 11);
    expected[48] = 24;
    CHECK(counts.read<int>(0) == expected);
  }
}

/// All blocks of a two-dimensional launch pass a barrier together.
__global__ void gridBarrierKernel(GridBarrier* barrier, int* arrived, int* wrong, BoundedWait policy) {
  const gpu::Grid grid;
  auto wait = policy;
  for (int round = 1; round <= 10; ++round) {
    if (grid.block().rank() == 0) atomicAdd(arrived, 1);
    barrier->sync(grid, wait);
    if (atomicAdd(arrived, 0) != round * grid.blockCount() || wait.failed()) atomicAdd(wrong, 1);
    barrier->sync(grid, wait);
  }
}

TEST_CASE("group: a barrier of all blocks of a two-dimensional launch") {
  GpuBackend backend;
  auto memory = backend.allocate(1, 64, 0);
  std::byte* const base = memory.window().at(0);
  auto* const counters = reinterpret_cast<int*>(base + sizeof(GridBarrier));
  gridBarrierKernel<<<dim3(3, 4), dim3(8, 8)>>>(reinterpret_cast<GridBarrier*>(base), counters, counters + 1,
                                                backend.wait());
  checkCuda(cudaDeviceSynchronize(), "kernel");
  const auto words = memory.read<int>(0);
  CHECK(words[2] == 120);
  CHECK(words[3] == 0);
}

/// Runs the cases of warps on tiles of cooperative_groups, and those of groups on a block and on coalesced threads.
struct CooperativeBody {
  Window<> out;
  Window<> slots;
  Window<> seen;
  static constexpr int rounds = 10;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
#if defined(__CUDA_ARCH__)
    const auto block = cooperative_groups::this_thread_block();
    auto* const wrong = reinterpret_cast<std::uint32_t*>(out.at(rank)) + grid.block().rank();
    WarpBody::run(gpu::CooperativeWarp(cooperative_groups::tiled_partition<32>(block)), wrong);
    WarpBody::run(gpu::CooperativeWarp(cooperative_groups::tiled_partition<8>(block)), wrong + 64);
    auto* const slot = reinterpret_cast<int*>(slots.at(rank));
    auto* const to = reinterpret_cast<int*>(seen.at(rank));
    NeighbourBody::run(gpu::CooperativeGroup(block), slot, to, rounds);
    if (grid.block().rank() % 32 < 5 && grid.warpIndex() == 0) {
      const gpu::CooperativeGroup coalesced(cooperative_groups::coalesced_threads());
      static_assert(ThreadGroup<decltype(coalesced)>);
      NeighbourBody::run(coalesced, slot + 64, to + 64 * rounds, rounds);
    }
#endif
  }
};

TEST_CASE("group: groups of cooperative_groups") {
  GpuBackend backend;
  constexpr int rounds = CooperativeBody::rounds;
  auto out = backend.allocate(1, 128 * sizeof(std::uint32_t), poisonByte);
  auto slots = backend.allocate(1, 128 * sizeof(int), poisonByte);
  auto seen = backend.allocate(1, 69 * rounds * sizeof(int), poisonByte);
  backend.launch({1, 1, 2}, CooperativeBody{out.window(), slots.window(), seen.window()});
  CHECK(out.read<std::uint32_t>(0) == std::vector<std::uint32_t>(128, 0));
  std::vector<int> expected;
  for (int size : {64, 5}) {
    for (int round = 0; round < rounds; ++round) {
      for (int r = 0; r < size; ++r) expected.push_back(round * 1000 + (r + 1) % size);
    }
  }
  CHECK(seen.read<int>(0) == expected);
}

using CooperativeTile = gpu::CooperativeWarp<cooperative_groups::thread_block_tile<16>>;
static_assert(WarpGroup<CooperativeTile> && CooperativeTile::width == 16 && !CooperativeTile::lockstepStores);
static_assert(gpu::CooperativeWarp<cooperative_groups::thread_block_tile<32>>::lockstepStores);
static_assert(ThreadGroup<gpu::CooperativeGroup<cooperative_groups::thread_block>>);

}  // namespace mscclpp::test
