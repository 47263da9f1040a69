// A persistent tile scheduler of CUTLASS that takes the rows of tiles in an order of its own.
#pragma once

#include <cstdint>
#include <cutlass/gemm/kernel/tile_scheduler.hpp>

#include "mscclpp/collective/block_order.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/cutlass/tile_blocks.hpp"

namespace mscclpp {

/// Orders of the rows of tiles: which of `tiles` rows of tiles comes i-th on `rank` of Ranks ranks. rows: those of the
/// problem; rowsPerTile: those of a tile. The number of ranks is a constant, since each tile takes a few divisions by
/// it, and a division takes as long as half of its epilogue.
template <RowDelivery delivery, class Owners, int Ranks>
struct RemoteRowsFirst {
  static MSCCLPP_HOST_DEVICE std::uint32_t at(std::uint32_t i, std::uint32_t tiles, std::uint32_t /*rows*/,
                                              std::uint32_t /*rowsPerTile*/, int rank) {
    return TileBlocks<delivery, Owners>{tiles, Ranks}.inOrder(i, rank);
  }
};
template <int Ranks>
struct GatheredRowsFirst {
  static MSCCLPP_HOST_DEVICE std::uint32_t at(std::uint32_t i, std::uint32_t tiles, std::uint32_t rows,
                                              std::uint32_t rowsPerTile, int rank) {
    constexpr auto ranks = static_cast<std::uint32_t>(Ranks);
    return gatheredBlock(i, tiles, (rows + ranks - 1) / ranks, rowsPerTile, rank, Ranks);
  }
};

/// The tag that selects the scheduler, as template argument TileScheduler of GemmUniversal.
template <class Order>
struct OrderedTiles {};

/// CUTLASS's static persistent scheduler with the rows of tiles renumbered by Order. Tiles of one row run along N,
/// unless the arguments say otherwise, so that a row of tiles is complete early. Works for clusters of any shape: which
/// row of tiles a block computes depends on its row alone, so that blocks which share operands still do.
template <class Order>
class OrderedTileScheduler : public cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90 {
  using Base = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90;

 public:
  using WorkTileInfo = typename Base::WorkTileInfo;
  using RasterOrderOptions = typename Base::RasterOrderOptions;

  struct Arguments : Base::Arguments {
    int rank = 0;
  };
  struct Params : Base::Params {
    std::uint32_t tiles;  ///< rows of tiles that hold rows of the problem
    std::uint32_t rows;
    std::uint32_t rowsPerTile;
    int rank;
  };

  template <class ProblemShape, class TileShape, class ClusterShape>
  static Params to_underlying_arguments(ProblemShape problem, TileShape tile, ClusterShape cluster,
                                        const cutlass::KernelHardwareInfo& hardware, const Arguments& arguments,
                                        void* workspace = nullptr, std::uint32_t epilogueSubtile = 1,
                                        std::uint32_t alignment = 1) {
    typename Base::Arguments base = arguments;
    if (base.raster_order == RasterOrderOptions::Heuristic) base.raster_order = RasterOrderOptions::AlongN;
    Params params;
    static_cast<typename Base::Params&>(params) =
        Base::to_underlying_arguments(problem, tile, cluster, hardware, base, workspace, epilogueSubtile, alignment);
    params.rows = static_cast<std::uint32_t>(cute::get<0>(problem));
    params.rowsPerTile = static_cast<std::uint32_t>(cute::size<0>(tile));
    params.tiles = (params.rows + params.rowsPerTile - 1) / params.rowsPerTile;
    params.rank = arguments.rank;
    return params;
  }

  CUTLASS_HOST_DEVICE OrderedTileScheduler() {}
  CUTLASS_DEVICE explicit OrderedTileScheduler(const Params& params) : Base(params), params_(params) {}

  CUTLASS_DEVICE WorkTileInfo get_current_work() const { return renumbered(Base::get_current_work()); }
  template <class ClusterShape>
  CUTLASS_DEVICE WorkTileInfo initial_work_tile_info(ClusterShape /*cluster*/) {
    return get_current_work();
  }
  CUTLASS_DEVICE auto fetch_next_work(WorkTileInfo /*current*/) {
    this->advance_to_next_work();
    return cute::make_tuple(get_current_work(), true);
  }
  template <class Pipeline, class PipelineState>
  CUTLASS_DEVICE auto fetch_next_work(WorkTileInfo current, Pipeline& /*pipeline*/, PipelineState /*state*/) {
    return fetch_next_work(current);
  }

 private:
  CUTLASS_DEVICE WorkTileInfo renumbered(WorkTileInfo tile) const {
    // A cluster may have blocks beyond the last row of tiles.
    if (tile.is_valid() && static_cast<std::uint32_t>(tile.M_idx) < params_.tiles) {
      tile.M_idx = static_cast<std::int32_t>(Order::at(static_cast<std::uint32_t>(tile.M_idx), params_.tiles,
                                                       params_.rows, params_.rowsPerTile, params_.rank));
    }
    return tile;
  }

  Params params_;
};

}  // namespace mscclpp

namespace cutlass::gemm::kernel::detail {

template <class Order, class ArchTag, class TileShape, class ClusterShape, std::uint32_t stages>
struct TileSchedulerSelector<mscclpp::OrderedTiles<Order>, ArchTag, TileShape, ClusterShape, stages> {
  using Scheduler = mscclpp::OrderedTileScheduler<Order>;
};

}  // namespace cutlass::gemm::kernel::detail
