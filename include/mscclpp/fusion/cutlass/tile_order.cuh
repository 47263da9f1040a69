// A persistent tile scheduler of CUTLASS that takes the rows of tiles in an order of its own.
#pragma once

#include <cstdint>
#include <cutlass/gemm/kernel/tile_scheduler.hpp>

#include "mscclpp/basic/group.hpp"
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
/// row of tiles a block computes depends on its row alone, so that blocks which share operands still do. Some blocks
/// may be left out, to send what the others compute.
template <class Order>
class OrderedTileScheduler : public cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90 {
  using Base = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90;

 public:
  using WorkTileInfo = typename Base::WorkTileInfo;
  using RasterOrderOptions = typename Base::RasterOrderOptions;

  struct Arguments : Base::Arguments {
    int rank = 0;
    int sendingBlocks = 0;  ///< the last ones of the grid, whole clusters: they get no tiles
  };
  struct Params : Base::Params {
    std::uint32_t tiles;  ///< rows of tiles that hold rows of the problem
    std::uint32_t rows;
    std::uint32_t rowsPerTile;
    int rank;
    std::uint32_t sendingBlocks;
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
    params.sendingBlocks = static_cast<std::uint32_t>(arguments.sendingBlocks);
    return params;
  }
  /// Without sending blocks, no more blocks than tiles.
  template <class ProblemShape, class TileShape, class ClusterShape>
  static dim3 get_grid_shape(const Params& params, ProblemShape problem, TileShape tile, ClusterShape cluster,
                             const cutlass::KernelHardwareInfo& hardware, const typename Base::Arguments& arguments) {
    const cutlass::gemm::GemmCoord blocks(cute::size<0>(cluster), cute::size<1>(cluster), cute::size<2>(cluster));
    return Base::Params::get_grid_shape(Base::get_tiled_cta_shape_mnl(cute::append<4>(problem, 1), tile, cluster),
                                        blocks, hardware, arguments.max_swizzle_size, arguments.raster_order,
                                        params.sendingBlocks == 0);
  }

  CUTLASS_HOST_DEVICE OrderedTileScheduler() {}
  CUTLASS_DEVICE explicit OrderedTileScheduler(const Params& params)
      : Base(params),
        params_(params),
        blocks_(static_cast<std::uint32_t>(gpu::launchBlocks()) - params.sendingBlocks),
        index_(blockIndex()) {}

  /// Whether this block is one of the sending ones, which must not ask for its tiles.
  CUTLASS_DEVICE bool isSending() const { return blockIndex() >= blocks_; }
  CUTLASS_DEVICE std::uint32_t computingBlocks() const { return blocks_; }
  CUTLASS_DEVICE std::uint32_t sendingBlocks() const { return params_.sendingBlocks; }
  /// The number of this block among those that do the same.
  CUTLASS_DEVICE std::uint32_t block() const { return blockIndex() - (isSending() ? blocks_ : 0); }
  /// The number of this block's cluster among those of blocks that do the same, compute or send, and the number of
  /// these.
  CUTLASS_DEVICE std::uint32_t cluster() const { return block() / clusterSize(); }
  CUTLASS_DEVICE std::uint32_t clusters() const {
    return (isSending() ? params_.sendingBlocks : blocks_) / clusterSize();
  }
  /// Of the i-th cluster of tiles, in the order in which `rank` computes them, the one at this block's place.
  CUTLASS_DEVICE WorkTileInfo tileOfCluster(std::uint32_t i, int rank) const {
    return at(i * clusterSize() + blockIndex() % clusterSize(), rank);
  }

  CUTLASS_DEVICE WorkTileInfo get_current_work() const { return at(index_, params_.rank); }
  CUTLASS_DEVICE void advance_to_next_work(std::uint32_t count = 1) { index_ += blocks_ * count; }
  CUTLASS_DEVICE bool is_last_tile(WorkTileInfo& /*current*/, std::uint32_t count = 1) const {
    return !Base::get_current_work_for_linear_idx(index_ + blocks_ * count).is_valid();
  }
  template <class ClusterShape>
  CUTLASS_DEVICE WorkTileInfo initial_work_tile_info(ClusterShape /*cluster*/) {
    return get_current_work();
  }
  CUTLASS_DEVICE auto fetch_next_work(WorkTileInfo /*current*/) {
    advance_to_next_work();
    return cute::make_tuple(get_current_work(), true);
  }
  template <class Pipeline, class PipelineState>
  CUTLASS_DEVICE auto fetch_next_work(WorkTileInfo current, Pipeline& /*pipeline*/, PipelineState /*state*/) {
    return fetch_next_work(current);
  }

 private:
  /// As CUTLASS numbers blocks: those of a cluster follow each other. Where tiles run along M, the grid has as many
  /// rows as a cluster.
  CUTLASS_DEVICE std::uint32_t blockIndex() const {
    const auto index = static_cast<std::uint32_t>(gpu::blockInLaunch());
    if (params_.raster_order_ == Base::RasterOrder::AlongN) return index;
    const auto rows = static_cast<std::uint32_t>(params_.cluster_shape_n_);
    const std::uint32_t columns = static_cast<std::uint32_t>(gpu::launchBlocks()) / rows;
    return index % columns * rows + index / columns;
  }
  CUTLASS_DEVICE std::uint32_t clusterSize() const {
    return static_cast<std::uint32_t>(params_.cluster_shape_m_ * params_.cluster_shape_n_);
  }
  CUTLASS_DEVICE WorkTileInfo at(std::uint32_t index, int rank) const {
    WorkTileInfo tile = Base::get_current_work_for_linear_idx(index);
    // A cluster may have blocks beyond the last row of tiles.
    if (tile.is_valid() && static_cast<std::uint32_t>(tile.M_idx) < params_.tiles) {
      tile.M_idx = static_cast<std::int32_t>(
          Order::at(static_cast<std::uint32_t>(tile.M_idx), params_.tiles, params_.rows, params_.rowsPerTile, rank));
    }
    return tile;
  }

  Params params_;
  std::uint32_t blocks_ = 0;  ///< that compute tiles
  std::uint32_t index_ = 0;   ///< of the current tile
};

namespace detail {

/// Whether a kernel with an OrderedTileScheduler can have the sending blocks that it shall have: they are whole
/// clusters, and others are beside them on the current GPU. canSend: whether its blocks can send for others at all.
template <class Kernel>
bool acceptsSendingBlocks(const typename Kernel::Arguments& arguments, bool canSend) {
  using Scheduler = typename Kernel::TileScheduler;
  using TileShape = typename Kernel::TileShape;
  using Cluster = typename Kernel::DispatchPolicy::ClusterShape;
  const int sending = arguments.scheduler.sendingBlocks;
  if (sending == 0) return true;
  if (!canSend || sending < 0 || sending % int{cute::size(Cluster{})} != 0) return false;
  auto hardware = arguments.hw_info;
  if (hardware.sm_count <= 0) {
    hardware.sm_count = cutlass::KernelHardwareInfo::query_device_multiprocessor_count(hardware.device_id);
  }
  const auto shape = cute::append<4>(arguments.problem_shape, 1);
  const auto params = Scheduler::to_underlying_arguments(shape, TileShape{}, Cluster{}, hardware, arguments.scheduler);
  const dim3 grid = Scheduler::get_grid_shape(params, shape, TileShape{}, Cluster{}, hardware, arguments.scheduler);
  return static_cast<unsigned>(sending) < grid.x * grid.y;
}

}  // namespace detail

}  // namespace mscclpp

namespace cutlass::gemm::kernel::detail {

template <class Order, class ArchTag, class TileShape, class ClusterShape, std::uint32_t stages>
struct TileSchedulerSelector<mscclpp::OrderedTiles<Order>, ArchTag, TileShape, ClusterShape, stages> {
  using Scheduler = mscclpp::OrderedTileScheduler<Order>;
};

}  // namespace cutlass::gemm::kernel::detail
