// Which calls the compiled GEMMs of CUTLASS serve, and how one runs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/cutlass/gemm_tiles.hpp"
#include "kernels/gemm_rates.hpp"

namespace mscclpp::kernels {

/// Whether kernels of CUTLASS can serve calls with a rank's sizes of a layer: rows of 16 bytes, sizes that are an int,
/// no norm.
inline bool cutlassAccepts(const GemmLayer& layer) {
  constexpr auto most = static_cast<std::size_t>(std::numeric_limits<int>::max());
  return !layer.hasNorm && layer.width % 8 == 0 && layer.depth % 8 == 0 &&
         std::max({layer.maxRows, layer.width, layer.depth}) <= most / 2;
}
/// Whether they can serve a call with so many rows: more than one row of tiles, and the slices of a reduce-scatter are
/// whole tiles.
inline bool cutlassAccepts(const GemmLayer& layer, std::size_t rows, int ranks) {
  constexpr auto tileRows = static_cast<std::size_t>(cutlassGemmTileRows);
  return rows > tileRows && (layer.collective != GemmCollective::ReduceScatter ||
                             rows % (tileRows * static_cast<std::size_t>(ranks)) == 0);
}

/// How a call runs in kernels of CUTLASS.
struct CutlassGemmPlan {
  int tile;           ///< of cutlassGemmTiles
  int sendingBlocks;  ///< blocks that only send (RowExchangeKernel); 0: each block sends what it computes
  double time;        ///< microseconds of what is computed and sent
};

/// Bytes that a sending block sends in a microsecond beside a multiplication. Measured between two H200.
inline constexpr double sendingBlockBytes = 34e3;

/// What sending blocks have to gain in an all-reduce by an estimate, which is too low for layers with much to multiply;
/// and the microseconds that a call takes without them: shorter ones have not been measured.
inline constexpr double leastSendingGain = 1.05, leastSendingTime = 15;

/// The time of two things at once, of which each is in the other's way, or hardly so: the sum of their powers of 2 and
/// 4. By operations that are rounded exactly: ranks must come to the same plan.
inline double slowedByEachOther(double a, double b) {
  return std::sqrt(a * a + b * b);
}
inline double beside(double a, double b) {
  return std::sqrt(slowedByEachOther(a * a, b * b));
}

/// The plan that is estimated to be the fastest, for a place with kernels of CUTLASS.
inline CutlassGemmPlan planCutlassGemm(const GemmPlace& place, const GemmLayer& layer, std::size_t rows) {
  const auto size = [](std::size_t value) { return static_cast<int>(value); };
  const int m = size(rows), n = size(layer.width), k = size(layer.depth), blocks = place.cutlassBlocks;
  const GemmBytes bytes = gemmBytes(layer, rows, place.ranks);
  const auto time = [&](int tile, int computing) {
    return std::max(place.rates.cutlassTiles * cutlassTime(tile, m, n, k, computing) / 1000,
                    bytes.weights / place.rates.cublas.bytes);
  };
  const bool reducesToAll = layer.collective == GemmCollective::AllReduce;
  // In a block that computes, stores for the link are in the way of the loads of the multiplication.
  const int tile = cutlassGemmTileFor(m, n, k, blocks);
  const CutlassGemmPlan plain{tile, 0, slowedByEachOther(time(tile, blocks), bytes.sent / gemmLinkBytes)};
  if (layer.collective == GemmCollective::AllGather || plain.time < leastSendingTime) return plain;
  // With the narrow tile one is summed while the next is multiplied.
  const int sendingTile = cutlassGemmTiles[1];
  const double leastGain = reducesToAll ? leastSendingGain : 1;
  // Most layers end here, which saves their calls the search: fewer blocks do not compute faster.
  if (leastGain * time(sendingTile, blocks) >= plain.time) return plain;
  CutlassGemmPlan best = plain;
  const CutlassTile& shape = cutlassTiles[sendingTile];
  const int cluster = shape.clusterRows * shape.clusterColumns;
  for (int sending = cluster; sending <= blocks / 4; sending += cluster) {
    const double rate = std::min(gemmLinkBytes, sending * sendingBlockBytes);
    const double both = beside(time(sendingTile, blocks - sending), bytes.sent / rate);
    if (both < best.time && leastGain * both < plain.time) best = {sendingTile, sending, both};
  }
  return best;
}

}  // namespace mscclpp::kernels
