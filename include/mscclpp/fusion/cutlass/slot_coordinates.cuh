// Epilogue callbacks of CUTLASS for tiles that are stored elsewhere than they are in the problem.
#pragma once

#include <cstdint>
#include <cute/tensor.hpp>
#include <cutlass/epilogue/fusion/sm90_visitor_tma_warpspecialized.hpp>

#include "mscclpp/config.hpp"
#include "mscclpp/fusion/cutlass/tile_blocks.hpp"

namespace mscclpp {

/// The callbacks Fusion in an epilogue whose coordinates count the slots of one owner: Fusion gets those of the
/// problem, so that what depends on a row or a column (scales, a bias, an edge) is right. Blocks: TileBlocks.
template <class Fusion, class Blocks, int Ranks>
struct SlotCoordinates : Fusion {
  using SharedStorage = typename Fusion::SharedStorage;
  using Arguments = typename Fusion::Arguments;

  struct Params {
    typename Fusion::Params fusion;
    int rows;  ///< of the problem
    int owner;
  };

  template <class ProblemShape>
  static Params to_underlying_arguments(const ProblemShape& problem, const Arguments& arguments, void* workspace) {
    return {Fusion::to_underlying_arguments(problem, arguments, workspace), static_cast<int>(cute::get<0>(problem)), 0};
  }

  CUTLASS_HOST_DEVICE SlotCoordinates() {}
  CUTLASS_HOST_DEVICE SlotCoordinates(const Params& params, const SharedStorage& shared)
      : Fusion(params.fusion, shared), rows_(params.rows), owner_(params.owner) {}

  template <bool ReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const cutlass::epilogue::fusion::detail::ConsumerStoreArgs<Args...>& slot) {
    auto tile = slot;
    const int rowsPerTile = static_cast<int>(cute::size<0>(slot.tile_shape_mnk));
    const int slotIndex = cute::get<0>(slot.tile_coord_mnkl);
    const Blocks blocks{static_cast<std::uint32_t>((rows_ + rowsPerTile - 1) / rowsPerTile), Ranks};
    const int row = static_cast<int>(blocks.tileIn(static_cast<std::uint32_t>(slotIndex), owner_));
    const int left = rows_ - row * rowsPerTile;
    const int leftOfSlots = cute::get<0>(slot.problem_shape_mnkl) - slotIndex * rowsPerTile;
    cute::get<0>(tile.problem_shape_mnkl) = rows_;
    cute::get<3>(tile.problem_shape_mnkl) = 1;
    cute::get<0>(tile.tile_coord_mnkl) = row;
    cute::get<3>(tile.tile_coord_mnkl) = 0;
    cute::get<0>(tile.residue_cD) += left - leftOfSlots;
    cute::get<0>(tile.residue_tCcD) += left - leftOfSlots;
    return Fusion::template get_consumer_store_callbacks<ReferenceSource>(tile);
  }

 private:
  int rows_ = 0;
  int owner_ = 0;
};

}  // namespace mscclpp
