// The plans of all-gathers in GEMMs of CUTLASS.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "kernels/gemm/cutlass/plan_terms.hpp"

namespace mscclpp::kernels {

/// Estimates the plans of a call, and keeps the fastest. The figures are fitted to calls on two H200
/// (bench/results/h200_x2_gemm_gathers_sending.txt).
class CutlassGatherPlanner {
 public:
  CutlassGatherPlanner(const GemmPlace& place, const GemmLayer& layer, std::size_t rows)
      : place_(place),
        sizes_(place, layer, rows),
        tiles_(cutlassGemmTiles(layer.operands, true)),
        blocks_(place.cutlassBlocks) {}

  CutlassGemmPlan plan() {
    for (const int tile : tiles_) offer(tile, 0);
    if (!canGainBySending()) return best_;
    const int most = std::min(mostSendingBlocks, blocks_ / 4);
    for (const int tile : tiles_) {
      const int cluster = cutlassClusterBlocks(tile);
      for (int sending = cluster; sending <= most; sending += cluster) {
        if (sending >= leastSendingBlocks) offer(tile, sending);
      }
    }
    return best_;
  }

 private:
  /// Numbers of sending blocks that have been measured: fewer do not pay, more fill no more of the link.
  static constexpr int leastSendingBlocks = 4, mostSendingBlocks = 12;
  /// What they have to gain: in long calls the estimate is a little too low for them.
  static constexpr double leastGain = 1.05;

  void offer(int tile, int sending) {
    const double time = sending > 0 ? withSendingBlocks(tile, sending) : withoutSendingBlocks(tile);
    const double gain = sending > 0 && best_.sendingBlocks == 0 ? leastGain : 1;
    if (time * gain < best_.time) best_ = {tile, sending, time};
  }
  /// Most layers are spared the search, by which their calls begin: sending blocks hide at most what is sent.
  bool canGainBySending() const {
    double computed = best_.time;
    for (const int tile : tiles_) computed = std::min(computed, computing(tile, blocks_));
    return place_.ranks > 1 && best_.time >= leastSendingTime && computed * leastGain < best_.time;
  }

  double withSendingBlocks(int tile, int sending) const {
    constexpr double blockBytes = 32e3;  // that one sends in a microsecond
    constexpr double start = 15;         // microseconds that they need beside
    const double rate = std::min(gemmLinkBytes, sending * blockBytes);
    return boundBy(computing(tile, blocks_ - sending) + firstRows(tile, sending), start + sizes_.bytes.sent / rate);
  }
  double withoutSendingBlocks(int tile) const {
    constexpr double warpBytes = 2.2e3;       // that one sends in a microsecond beside a multiplication
    constexpr double sendingPingpong = 1.07;  // what tiles of a pingpong kernel take longer in blocks that send as well
    const CutlassTile& shape = cutlassTiles[tile];
    const auto tiles =
        static_cast<double>(cutlassTilesAlong(sizes_.m, shape.rows) * cutlassTilesAlong(sizes_.n, shape.columns));
    const double slower = shape.schedule == CutlassSchedule::Pingpong && place_.ranks > 1 ? sendingPingpong : 1;
    // There are no more blocks than tiles.
    const double rate = std::min<double>(blocks_, tiles) * warpBytes;
    return slowedByEachOther(slower * computing(tile, blocks_), sizes_.bytes.sent / rate) + firstRows(tile, 0);
  }

  /// All tiles, by so many blocks: they take less than those of a reduction, which store sums.
  double computing(int tile, int blocks) const {
    constexpr double ofReduction = 0.97;
    return sizes_.timeOf(tile, blocks, place_.rates, ofReduction * place_.rates.cutlassTiles);
  }
  /// Until the first rows arrive, for which tiles wait that are all computed at once. All blocks begin to send at the
  /// same time: the more they are, the later their first parts have crossed the link.
  double firstRows(int tile, int sending) const {
    const bool areAtOnce = cutlassRounds(tile, sizes_.m, sizes_.n, blocks_ - sending) <= 1;
    if (place_.ranks == 1 || !areAtOnce) return 0;
    return sending > 0 ? 8 + 0.9 * sending : 18;
  }

  const GemmPlace& place_;
  const CutlassGemmSizes sizes_;
  const CutlassGemmTiles tiles_;
  const int blocks_;
  CutlassGemmPlan best_{0, 0, std::numeric_limits<double>::infinity()};
};

}  // namespace mscclpp::kernels
