// A collective main loop of CUTLASS for wide tiles of fp8, whose sums are added up in fp32 by halves.
#pragma once

#include <cstdint>
#include <cute/tensor.hpp>
#include <cutlass/gemm/collective/collective_mma.hpp>

#include "mscclpp/arch/warp.hpp"

namespace mscclpp {

namespace detail {

/// The main loop `Stock` with another TiledMma.
template <class Stock, class TiledMma>
struct WithTiledMma {
  static_assert(sizeof(Stock) == 0, "WideFp8Mainloop takes a CollectiveMma for fp8 that adds sums up in fp32");
};
template <int stages, class Cluster, class Schedule, class TileShape, class A, class StrideA, class B, class StrideB,
          class Multiply, class TiledMma, class... Copies>
struct WithTiledMma<cutlass::gemm::collective::CollectiveMma<
                        cutlass::gemm::MainloopSm90TmaGmmaWarpSpecializedFP8<stages, Cluster, Schedule>, TileShape, A,
                        StrideA, B, StrideB, Multiply, Copies...>,
                    TiledMma> {
  using Type = cutlass::gemm::collective::CollectiveMma<
      cutlass::gemm::MainloopSm90TmaGmmaWarpSpecializedFP8<stages, Cluster, Schedule>, TileShape, A, StrideA, B,
      StrideB, TiledMma, Copies...>;
};

/// Multiplies a tile by two warp groups, of 64 rows each, whose instructions have half of the columns.
template <class Stock>
using HalfTileMma = decltype(cute::make_tiled_mma(
    cute::GMMA::ss_op_selector<typename Stock::ElementA, typename Stock::ElementB, typename Stock::ElementAccumulator,
                               decltype(cute::make_shape(cute::size<0>(typename Stock::TileShape{}),
                                                         cute::size<1>(typename Stock::TileShape{}) / cute::_2{},
                                                         cute::size<2>(typename Stock::TileShape{})))>(),
    cute::Layout<cute::Shape<cute::_2, cute::_1, cute::_1>>()));

}  // namespace detail

/// Stock: the cooperative main loop for operands of fp8 of CUTLASS's builder, with a tile of 128 rows. CUTLASS needs
/// registers for two sums of each element of a tile, one of tensor cores, which add with few bits, and one in fp32, and
/// has them for up to 192 columns. Here a warp group has a second sum for half of its columns only: it multiplies and
/// adds up one half of each step after the other, while the other warp group keeps the tensor cores busy.
///
/// Sums are added up in fp32 after each step, as with CUTLASS's default and at least as often as
/// Arguments::mma_promotion_interval asks for; never, if that is as many instructions as the inner dimension takes.
template <class Stock>
class WideFp8Mainloop : public detail::WithTiledMma<Stock, detail::HalfTileMma<Stock>>::Type {
  using Base = typename detail::WithTiledMma<Stock, detail::HalfTileMma<Stock>>::Type;

 public:
  using typename Base::MainloopPipeline;
  using typename Base::Params;
  using typename Base::PipelineState;
  using typename Base::TensorStorage;
  using typename Base::TiledMma;
  static_assert(sizeof(typename Base::ElementA) == 1 && sizeof(typename Base::ElementB) == 1, "for operands of fp8");
  static_assert(cute::size(TiledMma{}) == 256, "two warp groups multiply a tile together");

  /// Sets `sums` to those of a tile after so many steps, at least one, and releases all their stages. Called by the
  /// threads of both warp groups, with their rank among these.
  template <class Sums>
  CUTLASS_DEVICE void mma(MainloopPipeline pipeline, PipelineState stage, Sums& sums, int steps, int thread,
                          TensorStorage& shared, const Params& params) {
    using namespace cute;
    constexpr int groupThreads = cutlass::NumThreadsPerWarpGroup;
    // From one lane, so that descriptors are the warp's, in uniform registers.
    const auto group = static_cast<int>(
        arch::warpShuffle(0xffffffffu, static_cast<std::uint32_t>(thread / groupThreads), 0, arch::warpWidth));
    const auto slice = TiledMma().get_slice(group * groupThreads);
    const Tensor sharedA = make_tensor(make_smem_ptr(shared.smem_A.data()), typename Base::SmemLayoutA{});
    const Tensor sharedB = make_tensor(make_smem_ptr(shared.smem_B.data()), typename Base::SmemLayoutB{});
    const Tensor a = slice.make_fragment_A(slice.partition_A(sharedA));  // (instruction, rows, depth, stages)
    const Tensor b = slice.make_fragment_B(slice.partition_B(sharedB));  // (instruction, halves, depth, stages)
    static_assert(size<1>(decltype(a){}) == 1 && size<1>(decltype(b){}) == 2);
    constexpr int instructions = size<2>(decltype(a){});
    if (params.mma_promotion_interval < static_cast<std::uint64_t>(steps) * instructions) {
      addUpSteps(pipeline, stage, sums, steps, a, b);
    } else {
      multiplySteps(pipeline, stage, sums, steps, a, b);
    }
  }
  /// mma() has released all stages.
  CUTLASS_DEVICE void mma_tail(MainloopPipeline /*pipeline*/, PipelineState /*stage*/, int /*steps*/) {}

 private:
  /// Starts the instructions of a step, or of a half of its columns, and leaves them under way. a, b: their last mode
  /// is the depth of the step.
  template <class A, class B, class Sums>
  static CUTLASS_DEVICE void start(TiledMma& multiply, const A& a, const B& b, Sums& sums) {
    const auto at = [](const auto& operand, int depth) {
      return operand(cute::append(cute::repeat<A::rank - 1>(cute::_), depth));
    };
    static_assert(A::rank == B::rank);
    cute::warpgroup_fence_operand(sums);
    cute::warpgroup_arrive();
    CUTLASS_PRAGMA_UNROLL
    for (int depth = 0; depth < cute::size<A::rank - 1>(A{}); ++depth) {
      cute::gemm(multiply, at(a, depth), at(b, depth), sums);
      multiply.accumulate_ = cute::GMMA::ScaleOut::One;
    }
    cute::warpgroup_commit_batch();
  }

  template <class Sums, class A, class B>
  static CUTLASS_DEVICE void addUpSteps(MainloopPipeline& pipeline, PipelineState stage, Sums& sums, int steps,
                                        const A& a, const B& b) {
    using namespace cute;
    constexpr int halves = size<2>(Sums{});
    auto terms = make_fragment_like(sums(_, 0, 0));
    clear(sums);
    CUTLASS_PRAGMA_NO_UNROLL
    for (; steps > 0; --steps, ++stage) {
      pipeline.consumer_wait(stage);
      CUTLASS_PRAGMA_UNROLL
      for (int half = 0; half < halves; ++half) {
        TiledMma multiply;
        multiply.accumulate_ = GMMA::ScaleOut::Zero;
        start(multiply, a(_, 0, _, stage.index()), b(_, half, _, stage.index()), terms);
        warpgroup_wait<0>();
        warpgroup_fence_operand(terms);
        if (half == halves - 1) pipeline.consumer_release(stage);
        auto sumsOfHalf = sums(_, 0, half);
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < size(terms); ++i) sumsOfHalf(i) += terms(i);
      }
    }
  }
  template <class Sums, class A, class B>
  static CUTLASS_DEVICE void multiplySteps(MainloopPipeline& pipeline, PipelineState stage, Sums& sums, int steps,
                                           const A& a, const B& b) {
    using namespace cute;
    TiledMma multiply;
    multiply.accumulate_ = GMMA::ScaleOut::Zero;
    PipelineState last = stage;
    for (int step = 0; step < steps; ++step, ++stage) {
      pipeline.consumer_wait(stage);
      start(multiply, a(_, _, _, stage.index()), b(_, _, _, stage.index()), sums);
      if (step == 0) continue;
      warpgroup_wait<1>();
      pipeline.consumer_release(last);
      ++last;
    }
    warpgroup_wait<0>();
    warpgroup_fence_operand(sums);
    if (steps > 0) pipeline.consumer_release(last);
  }
};

}  // namespace mscclpp
