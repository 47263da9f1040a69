// The GEMM kernel of CUTLASS for a tile: Hopper, warp-specialised, persistent, row-major operands and output.
#pragma once

#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "mscclpp/fusion/cutlass/tile_choice.hpp"
#include "mscclpp/fusion/cutlass/wide_fp8_mainloop.cuh"

namespace mscclpp {

namespace detail {
/// Whether one instruction multiplies all columns of a tile. Otherwise CUTLASS takes several of 32 columns, which are
/// slower together. The same in all sources of a program.
template <int columns>
inline constexpr bool hasInstruction =
#if defined(CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED)
    columns % 8 == 0 && columns <= 256;
#else
    columns == 64 || columns == 96 || columns == 128 || columns == 192 || columns == 256;
#endif
}  // namespace detail

/// StockGemm<tile, Operand, Output>::Type is a cutlass::gemm::kernel::GemmUniversal that multiplies A (rows x depth) by
/// the transpose of B (columns x depth), accumulates in fp32 and has no C, as GemmRowExchange and AllGatherGemmKernel
/// want it. Operand: of A and B; Output: of D, or void if there is none, since Fusion stores (ContributeTiles); every
/// row begins at a multiple of 16 bytes. Fusion: what the epilogue makes of the accumulators. reservedBytes: shared
/// memory that is left to others: for AllGatherGemmKernel gatherSharedBytes; for a GemmRowExchange that sums tiles
/// exchangeSharedBytes, which of cutlassTiles those of 192 columns lack otherwise. Wide tiles of fp8, for which CUTLASS
/// has no registers, have the main loop WideFp8Mainloop.
template <CutlassTile tile, class Operand, class Output,
          class Fusion = cutlass::epilogue::fusion::LinearCombination<Output, float, void, float>,
          int reservedBytes = 0>
class StockGemm {
  static_assert(detail::hasInstruction<tile.columns>,
                "for a tile of so many columns, define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED for all sources that "
                "include CUTLASS");
  using TileShape = cute::Shape<cute::Int<tile.rows>, cute::Int<tile.columns>, cute::Int<tile.depth>>;
  using ClusterShape = cute::Shape<cute::Int<tile.clusterRows>, cute::Int<tile.clusterColumns>, cute::_1>;
  static constexpr bool isPingpong = tile.schedule == CutlassSchedule::Pingpong;
  using Schedule = cute::conditional_t<isPingpong, cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                                       cutlass::gemm::KernelTmaWarpSpecializedCooperative>;
  using EpilogueSchedule = cute::conditional_t<isPingpong, cutlass::epilogue::TmaWarpSpecialized,
                                               cutlass::epilogue::TmaWarpSpecializedCooperative>;
  static_assert(cutlass::sizeof_bits<Operand>::value == 8 * tile.operandBytes, "a tile for operands of another size");
  static constexpr bool isWideFp8 = tile.operandBytes == 1 && tile.columns > 192;
  using RowMajor = cutlass::layout::RowMajor;
  using ColumnMajor = cutlass::layout::ColumnMajor;
  template <class Element>
  static constexpr int alignment =
      128 / cutlass::sizeof_bits<cute::conditional_t<cute::is_void_v<Element>, cutlass::half_t, Element>>::value;

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, RowMajor, alignment<Output>, Output,
      RowMajor, alignment<Output>, EpilogueSchedule, Fusion>::CollectiveOp;
  using BuiltMainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Operand, RowMajor, alignment<Operand>, Operand, ColumnMajor,
      alignment<Operand>, float, TileShape, ClusterShape,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage)) +
                                                        reservedBytes>,
      Schedule>::CollectiveOp;
  using Mainloop = cute::conditional_t<isWideFp8, WideFp8Mainloop<BuiltMainloop>, BuiltMainloop>;

 public:
  using Type = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;
};

}  // namespace mscclpp
