// Which calls the compiled GEMMs of CUTLASS serve, and how one runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "kernels/gemm/cutlass/gather_plan.hpp"
#include "kernels/gemm/cutlass/reduction_plan.hpp"

namespace mscclpp::kernels {

/// Whether kernels of CUTLASS can serve calls with a rank's sizes of a layer: rows of 16 bytes, sizes that are an int,
/// no norm.
inline bool cutlassAccepts(const GemmLayer& layer) {
  constexpr auto most = static_cast<std::size_t>(std::numeric_limits<int>::max());
  const std::size_t depthUnit = layer.operands == DataType::BFLOAT16 ? 8 : 16;
  return !layer.hasNorm && layer.width % 8 == 0 && layer.depth % depthUnit == 0 &&
         std::max({layer.maxRows, layer.width, layer.depth}) <= most / 2;
}
/// Whether they can serve a call with so many rows: more than one row of tiles, and the slices of a reduce-scatter are
/// whole tiles.
inline bool cutlassAccepts(const GemmLayer& layer, std::size_t rows, int ranks) {
  constexpr auto tileRows = static_cast<std::size_t>(cutlassGemmTileRows);
  return rows > tileRows && (layer.collective != GemmCollective::ReduceScatter ||
                             rows % (tileRows * static_cast<std::size_t>(ranks)) == 0);
}

/// The plan that is estimated to be the fastest, for a place with kernels of CUTLASS.
inline CutlassGemmPlan planCutlassGemm(const GemmPlace& place, const GemmLayer& layer, std::size_t rows) {
  if (layer.collective == GemmCollective::AllGather) return CutlassGatherPlanner(place, layer, rows).plan();
  return CutlassReductionPlanner(place, layer, rows).plan();
}

}  // namespace mscclpp::kernels
