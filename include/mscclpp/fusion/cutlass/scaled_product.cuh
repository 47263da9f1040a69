// The epilogues of a GEMM of CUTLASS whose operands have scales for their rows.
#pragma once

#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/sm90_visitor_compute_tma_warpspecialized.hpp>
#include <cutlass/epilogue/fusion/sm90_visitor_load_tma_warpspecialized.hpp>
#include <cutlass/epilogue/fusion/sm90_visitor_tma_warpspecialized.hpp>

#include "mscclpp/fusion/cutlass/tile_choice.hpp"

namespace mscclpp {

/// The scales of the rows of a product, some of which may lie elsewhere than the others.
struct GatheredScales {
  const float* all;              ///< of row r at all[r]
  const float* own = nullptr;    ///< of rows [firstOwn, endOwn)
  int firstOwn = 0, endOwn = 0;  ///< multiples of the rows of a tile; the same: there are none
};

namespace detail {

/// The node of a visitor tree with the scales of the rows of a tile.
template <class TileShape>
using RowScales = cutlass::epilogue::fusion::Sm90ColBroadcast<0, TileShape, float>;

/// The same of GatheredScales.
template <class TileShape>
class GatheredRowScales : public RowScales<TileShape> {
 public:
  using Base = RowScales<TileShape>;
  struct Arguments : Base::Arguments {
    GatheredScales scales;
  };
  struct Params : Base::Params {
    GatheredScales scales;
  };
  using typename Base::SharedStorage;

  template <class ProblemShape>
  static constexpr Params to_underlying_arguments(const ProblemShape& problem, const Arguments& arguments,
                                                  void* workspace) {
    typename Base::Params params = Base::to_underlying_arguments(problem, arguments, workspace);
    params.ptr_col = arguments.scales.all;  // null would mean that there is nothing to add to a product
    return {params, arguments.scales};
  }

  CUTLASS_HOST_DEVICE GatheredRowScales() {}
  CUTLASS_HOST_DEVICE GatheredRowScales(const Params& params, const SharedStorage& shared)
      : Base(params, shared), scales_(params.scales) {}

  template <bool referenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(const cutlass::epilogue::fusion::ConsumerStoreArgs<Args...>& args) {
    const int row =
        static_cast<int>(cute::get<0>(args.tile_coord_mnkl)) * static_cast<int>(cute::size<0>(args.tile_shape_mnk));
    const bool isOwn = row >= scales_.firstOwn && row < scales_.endOwn;
    Base::params.ptr_col = isOwn ? scales_.own - scales_.firstOwn : scales_.all;
    return Base::template get_consumer_store_callbacks<referenceSource>(args);
  }

 private:
  GatheredScales scales_;
};

/// The tree columnScale * (rowScale * accumulator), as Output.
template <CutlassTile tile, class Output, template <class> class ScalesOfRows>
struct ScaledProductTree {
  template <class T>
  using Multiply =
      cutlass::epilogue::fusion::Sm90Compute<cutlass::multiplies, T, float, cutlass::FloatRoundStyle::round_to_nearest>;
  using TileShape = cute::Shape<cute::Int<tile.rows>, cute::Int<tile.columns>, cute::Int<tile.depth>>;
  using ColumnScales = cutlass::epilogue::fusion::Sm90RowBroadcast<0, TileShape, float>;
  using Type =
      cutlass::epilogue::fusion::Sm90EVT<Multiply<Output>, ColumnScales,
                                         cutlass::epilogue::fusion::Sm90EVT<Multiply<float>, ScalesOfRows<TileShape>,
                                                                            cutlass::epilogue::fusion::Sm90AccFetch>>;
};

}  // namespace detail

/// ScaledProduct<tile, Output>::Type is the visitor tree columnScale * (rowScale * accumulator), as Output: the fusion
/// of a StockGemm with this tile and operands of fp8.
template <CutlassTile tile, class Output>
struct ScaledProduct : detail::ScaledProductTree<tile, Output, detail::RowScales> {
  /// Sets the arguments of the tree: a scale for each row and each column of the product, at multiples of 16 bytes.
  template <class Arguments>
  static void setScales(Arguments& arguments, const float* ofRows, const float* ofColumns) {
    arguments.op_0.ptr_row = ofColumns;
    arguments.op_1.op_0.ptr_col = ofRows;
  }
};

/// The same for an AllGatherGemmKernel that gathers the scales of rows, one for each.
template <CutlassTile tile, class Output>
struct GatheredScaledProduct : detail::ScaledProductTree<tile, Output, detail::GatheredRowScales> {
  /// ofRows: what GatheringMainloop::scalesOf() returns; ofColumns, and scales of own rows, at multiples of 16 bytes.
  template <class Arguments>
  static void setScales(Arguments& arguments, const GatheredScales& ofRows, const float* ofColumns) {
    arguments.op_0.ptr_row = ofColumns;
    arguments.op_1.op_0.scales = ofRows;
  }
};

}  // namespace mscclpp
