// The tiles of the library's GEMMs for few rows, and which one a call has.
#pragma once

#include <cstddef>

#include "mscclpp/kernels/fused_gemm.hpp"

namespace mscclpp::kernels {

/// A tile of the library's kernels for few rows.
struct FewRowsTile {
  std::size_t rows;
  double bytes;   ///< of the weights that a multiprocessor works on in a microsecond where reading is not the limit
  bool isShared;  ///< also of an all-gather, where a tile has rows of one rank, and of an all-reduce with a norm
};
inline constexpr FewRowsTile fewRowsTiles[] = {
    {16, 50e3, true}, {32, 33e3, false}, {64, 24.4e3, true}, {128, 15.7e3, false}};
inline constexpr std::size_t fewRowsColumns = 64;

/// The tile of a call of few rows; null: it has many, or it is a reduce-scatter with a norm.
inline const FewRowsTile* fewRowsTileOf(GemmCollective collective, std::size_t rows, int ranks, bool hasNorm = false) {
  const bool gathers = collective == GemmCollective::AllGather;
  if (hasNorm && collective != GemmCollective::AllReduce) return nullptr;
  for (const FewRowsTile& tile : fewRowsTiles) {
    const std::size_t most = tile.rows * static_cast<std::size_t>(gathers ? ranks : 1);
    if ((tile.isShared || !(gathers || hasNorm)) && rows <= most) return &tile;
  }
  return nullptr;
}

}  // namespace mscclpp::kernels
