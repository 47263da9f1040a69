// What the plans of kernels of CUTLASS are made of: how a call runs, its sizes, and times of two things at once.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/gemm/cutlass/gemm_tiles.hpp"
#include "kernels/gemm/rates.hpp"

// nvcc and the host's compiler lay out the captures of a lambda differently if it calls member functions, and the
// linker keeps one of their copies of a function template that it is passed to: so the planners, which sources of both
// include, pass no such lambdas.

namespace mscclpp::kernels {

/// How a call runs in kernels of CUTLASS.
struct CutlassGemmPlan {
  int tile;           ///< of cutlassGemmTiles()
  int sendingBlocks;  ///< blocks that only send (RowExchangeKernel, AllGatherGemmKernel); 0: all compute and send
  double time;        ///< microseconds of what is computed and sent
};

/// The time of two things at once: the sums of their powers of 2, 4 and 8, the less the one is in the other's way the
/// higher. By operations that are rounded exactly: ranks must come to the same plan.
inline double slowedByEachOther(double a, double b) {
  return std::sqrt(a * a + b * b);
}
inline double beside(double a, double b) {
  return std::sqrt(slowedByEachOther(a * a, b * b));
}
inline double boundBy(double a, double b) {
  return std::sqrt(beside(a * a, b * b));
}

/// The microseconds that a call takes without sending blocks, from which on it may have some: shorter ones have not
/// been measured.
inline constexpr double leastSendingTime = 15;

/// The sizes of a call as kernels of CUTLASS have them, and the bytes of its collective.
struct CutlassGemmSizes {
  int m, n, k;
  GemmBytes bytes;

  CutlassGemmSizes(const GemmPlace& place, const GemmLayer& layer, std::size_t rows)
      : m(static_cast<int>(rows)),
        n(static_cast<int>(layer.width)),
        k(static_cast<int>(layer.depth)),
        bytes(gemmBytes(layer, rows, place.ranks)) {}

  /// Microseconds in which so many blocks compute all tiles. tiles: what they take of cutlassTime().
  double timeOf(int tile, int blocks, const GemmRates& rates, double tiles) const {
    return std::max(tiles * cutlassTime(tile, m, n, k, blocks) / 1000, bytes.weights / rates.cublas.bytes);
  }
};

/// The blocks of a cluster of a tile. Blocks that only send are whole clusters.
inline int cutlassClusterBlocks(int tile) {
  return cutlassTiles[tile].clusterRows * cutlassTiles[tile].clusterColumns;
}

}  // namespace mscclpp::kernels
