// The epilogue of a GEMM of CUTLASS whose operands have scales for their rows.
#pragma once

#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/sm90_visitor_compute_tma_warpspecialized.hpp>
#include <cutlass/epilogue/fusion/sm90_visitor_load_tma_warpspecialized.hpp>
#include <cutlass/epilogue/fusion/sm90_visitor_tma_warpspecialized.hpp>

#include "mscclpp/fusion/cutlass/tile_choice.hpp"

namespace mscclpp {

/// ScaledProduct<tile, Output>::Type is the visitor tree columnScale * (rowScale * accumulator), as Output: the fusion
/// of a StockGemm with this tile and operands of fp8.
template <CutlassTile tile, class Output>
struct ScaledProduct {
  template <class T>
  using Multiply =
      cutlass::epilogue::fusion::Sm90Compute<cutlass::multiplies, T, float, cutlass::FloatRoundStyle::round_to_nearest>;
  using TileShape = cute::Shape<cute::Int<tile.rows>, cute::Int<tile.columns>, cute::Int<tile.depth>>;
  using RowScales = cutlass::epilogue::fusion::Sm90ColBroadcast<0, TileShape, float>;
  using ColumnScales = cutlass::epilogue::fusion::Sm90RowBroadcast<0, TileShape, float>;
  using Type = cutlass::epilogue::fusion::Sm90EVT<
      Multiply<Output>, ColumnScales,
      cutlass::epilogue::fusion::Sm90EVT<Multiply<float>, RowScales, cutlass::epilogue::fusion::Sm90AccFetch>>;

  /// Sets the arguments of the tree: a scale for each row and each column of the product, at multiples of 16 bytes.
  template <class Arguments>
  static void setScales(Arguments& arguments, const float* ofRows, const float* ofColumns) {
    arguments.op_0.ptr_row = ofColumns;
    arguments.op_1.op_0.ptr_col = ofRows;
  }
};

}  // namespace mscclpp
