// The plans of all-reduces and reduce-scatters in GEMMs of CUTLASS.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/gemm/cutlass/plan_terms.hpp"

namespace mscclpp::kernels {

/// Estimates the plans of a call. The figures are fitted to calls on two H200
/// (bench/results/h200_x2_gemm_sends.txt, fp8 h200_x2_gemm_fp8_fast.txt).
class CutlassReductionPlanner {
 public:
  CutlassReductionPlanner(const GemmPlace& place, const GemmLayer& layer, std::size_t rows)
      : place_(place),
        sizes_(place, layer, rows),
        tiles_(cutlassGemmTiles(layer.operands, false)),
        blocks_(place.cutlassBlocks),
        reducesToAll_(layer.collective == GemmCollective::AllReduce),
        isFp8_(layer.operands != DataType::BFLOAT16),
        addsUpSums_(isFp8_ && !layer.fastAccumulation) {}

  CutlassGemmPlan plan() const {
    const CutlassGemmPlan plain =
        withoutSendingBlocks(cutlassGemmTileFor(tiles_, sizes_.m, sizes_.n, sizes_.k, blocks_));
    const CutlassGemmPlan best = withSendingBlocks(plain);
    if (!reducesToAll_) return best;
    // By how much a plan with sending blocks is estimated to be shorter than one without does not matter to the form of
    // the call: where the link is about the bound, the estimate of narrow tiles without them is up to a third too low.
    const bool mayLose = isFp8_ && !addsUpSums_ && !isBoundByLink();  // leastGain() asks for nothing
    if (best.sendingBlocks > 0 && !mayLose) return withLastResults(best);
    CutlassGemmPlan fastest = withLastRound(withoutSendingBlocks(tiles_.tiles[0]));
    for (const int tile : tiles_) {
      const CutlassGemmPlan of = withLastRound(withoutSendingBlocks(tile));
      if (of.time < fastest.time) fastest = of;
    }
    if (best.sendingBlocks > 0 && withLastResults(best).time < fastest.time) fastest = withLastResults(best);
    return fastest;
  }

 private:
  int narrow() const { return tiles_.tiles[1]; }
  double computing(int tile, int blocks) const {
    return sizes_.timeOf(tile, blocks, place_.rates, place_.rates.cutlassTiles);
  }
  /// Then there is little to multiply. Of fp8: bf16 has been measured without this distinction.
  bool isBoundByLink() const { return isFp8_ && sizes_.bytes.sent / gemmLinkBytes > computing(narrow(), blocks_); }

  /// In a block that computes, stores for the link are in the way of the loads of the multiplication.
  CutlassGemmPlan withoutSendingBlocks(int tile) const {
    return {tile, 0, slowedByEachOther(computing(tile, blocks_), sizes_.bytes.sent / gemmLinkBytes)};
  }

  /// The best plan with them, or `plain` if they do not gain enough. With the narrow tile of bfloat16 one is summed
  /// while the next is multiplied; and narrow ones are in smaller pieces for the queues, but add up sums of fp8 more
  /// slowly. Wide ones only gain in long reduce-scatters that the link bounds.
  CutlassGemmPlan withSendingBlocks(const CutlassGemmPlan& plain) const {
    constexpr double leastWideTime = 100;
    CutlassGemmPlan best = plain;
    offerSendingBlocks(narrow(), plain, best);
    if (!isBoundByLink() || reducesToAll_ || plain.time < leastWideTime) return best;
    for (const int tile : tiles_) {
      if (tile != narrow()) offerSendingBlocks(tile, plain, best);
    }
    return best;
  }
  void offerSendingBlocks(int tile, const CutlassGemmPlan& plain, CutlassGemmPlan& best) const {
    constexpr double blockBytes = 34e3;  // that one sends in a microsecond beside a multiplication
    const double gain = leastGain();
    // Most layers are spared the search, by which their calls begin: fewer blocks do not compute faster.
    if (plain.time < leastSendingTime || gain * computing(tile, blocks_) >= plain.time) return;
    const int cluster = cutlassClusterBlocks(tile);
    for (int sending = cluster; sending <= blocks_ / 4; sending += cluster) {
      const double rate = std::min(gemmLinkBytes, sending * blockBytes);
      const double both = beside(computing(tile, blocks_ - sending), sizes_.bytes.sent / rate);
      if (both < best.time && gain * both < plain.time) best = {tile, sending, both};
    }
  }
  /// What they have to gain in an all-reduce that the multiplication bounds, by an estimate that is too low for layers
  /// with much to multiply, and lower for narrow tiles of fp8 whose sums are added up in further registers; without
  /// these narrow tiles are nearly as fast as wide ones, which the estimate has not.
  double leastGain() const {
    if (!reducesToAll_ || isBoundByLink()) return 1;
    return addsUpSums_ ? 1.1 : isFp8_ ? 1 : 1.05;
  }

  /// The last results of an all-reduce come to another rank from sending blocks.
  CutlassGemmPlan withLastResults(CutlassGemmPlan of) const {
    constexpr double lastResults = 10, lastResultRows = 1024;
    of.time += lastResults * (place_.ranks - 1) * std::min(1.0, sizes_.m / lastResultRows);
    return of;
  }
  /// Without those, all blocks end their last tiles, which are own ones, at about the same time; and a block takes as
  /// long to send one to one rank as the link would if all of them did.
  CutlassGemmPlan withLastRound(CutlassGemmPlan of) const {
    constexpr double hidden = 12.5;  // microseconds for which it can occupy the link before it shows
    const CutlassTile& shape = cutlassTiles[of.tile];
    const double tile = double{1} * shape.rows * shape.columns, peers = place_.ranks - 1;
    const double own = std::min<double>(blocks_, static_cast<double>(sizes_.m) * sizes_.n / tile / place_.ranks);
    const double sent = std::max<double>(own * peers, blocks_) * tile * gemmElementBytes;
    of.time += std::max(0.0, sent / gemmLinkBytes - hidden);
    return of;
  }

  const GemmPlace& place_;
  const CutlassGemmSizes sizes_;
  const CutlassGemmTiles tiles_;
  const int blocks_;
  const bool reducesToAll_;
  const bool isFp8_;
  const bool addsUpSums_;  ///< of fp8, in further registers
};

}  // namespace mscclpp::kernels
