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

/// How a call runs in kernels of CUTLASS.
struct CutlassGemmPlan {
  int tile;           ///< of cutlassGemmTiles()
  int sendingBlocks;  ///< blocks that only send (RowExchangeKernel, AllGatherGemmKernel); 0: all compute and send
  double time;        ///< microseconds of what is computed and sent
};

/// Bytes that a sending block of a reduction sends in a microsecond beside a multiplication. Measured between two H200.
inline constexpr double sendingBlockBytes = 34e3;

/// What sending blocks have to gain in an all-reduce that the multiplication bounds, by an estimate that is too low for
/// layers with much to multiply, and lower for narrow tiles of fp8 whose sums are added up in further registers
/// (bench/results/h200_x2_gemm_fp8_fast.txt). And the microseconds that a call takes without them: shorter ones have
/// not been measured, and shorter ones of fp8 do not gain with wide tiles.
inline constexpr double leastSendingGain = 1.05, leastSendingGainFp8 = 1.1, leastSendingTime = 15,
                        leastWideSendingTime = 100;

/// The time of two things at once, of which each is in the other's way, or hardly so: the sum of their powers of 2 and
/// 4. By operations that are rounded exactly: ranks must come to the same plan.
inline double slowedByEachOther(double a, double b) {
  return std::sqrt(a * a + b * b);
}
inline double beside(double a, double b) {
  return std::sqrt(slowedByEachOther(a * a, b * b));
}

/// Microseconds in which the last results of an all-reduce of so many rows and more come to another rank from sending
/// blocks; and, without those, for how long the last round of tiles can occupy the link before it shows.
inline constexpr double lastResults = 10, lastResultRows = 1024, hiddenResults = 12.5;

/// The time of an all-gather by sending blocks, where either the tiles are the bound or what is sent: the sum of the
/// powers of 8.
inline double boundBy(double a, double b) {
  return std::sqrt(beside(a * a, b * b));
}

/// Of an all-gather: what its tiles take of those of a reduction, which store sums; the bytes that a warp sends in a
/// microsecond beside a multiplication, and a block that only sends; and the microseconds that such blocks need beside.
inline constexpr double gatherTiles = 0.97, gatherWarpBytes = 2.2e3, gatherBlockBytes = 32e3, gatherBlockStart = 15;
/// What the tiles of a pingpong kernel take longer in blocks that send as well.
inline constexpr double sendingPingpong = 1.07;
/// Microseconds until the first rows arrive, for which tiles wait that are all computed at once. All blocks begin to
/// send at the same time: the more they are, the later their first parts have crossed the link.
inline double firstGatheredRows(int sendingBlocks) {
  return sendingBlocks > 0 ? 8 + 0.9 * sendingBlocks : 18;
}
/// What sending blocks have to gain: in long calls the estimate is a little too low for them.
inline constexpr double leastGatherGain = 1.05;
/// Numbers of sending blocks of an all-gather that have been measured: fewer do not pay, more fill no more of the link.
inline constexpr int leastGatherBlocks = 4, mostGatherBlocks = 12;

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

/// The plan of an all-gather.
inline CutlassGemmPlan planCutlassGather(const GemmPlace& place, const GemmLayer& layer, std::size_t rows) {
  const CutlassGemmSizes sizes(place, layer, rows);
  const GemmBytes& bytes = sizes.bytes;
  const int blocks = place.cutlassBlocks;
  CutlassGemmPlan best{0, 0, std::numeric_limits<double>::infinity()};
  const auto computing = [&](int tile, int count) {
    return sizes.timeOf(tile, count, place.rates, gatherTiles * place.rates.cutlassTiles);
  };
  const auto offer = [&](int tile, int sending) {
    const double time = computing(tile, blocks - sending);
    const bool areAtOnce = cutlassRounds(tile, sizes.m, sizes.n, blocks - sending) <= 1;
    const double first = place.ranks > 1 && areAtOnce ? firstGatheredRows(sending) : 0;
    double both = 0;  // computed and sent
    if (sending > 0) {
      const double rate = std::min(gemmLinkBytes, sending * gatherBlockBytes);
      both = boundBy(time + first, gatherBlockStart + bytes.sent / rate);
    } else {
      // Without sending blocks there are no more blocks than tiles.
      const CutlassTile& shape = cutlassTiles[tile];
      const auto tiles =
          static_cast<double>(cutlassTilesAlong(sizes.m, shape.rows) * cutlassTilesAlong(sizes.n, shape.columns));
      const double slower = shape.schedule == CutlassSchedule::Pingpong && place.ranks > 1 ? sendingPingpong : 1;
      both = slowedByEachOther(slower * time, bytes.sent / (std::min<double>(blocks, tiles) * gatherWarpBytes)) + first;
    }
    const double gain = sending > 0 && best.sendingBlocks == 0 ? leastGatherGain : 1;
    if (both * gain < best.time) best = {tile, sending, both};
  };
  const CutlassGemmTiles tiles = cutlassGemmTiles(layer.operands, true);
  for (const int tile : tiles) offer(tile, 0);
  // Most layers are spared the search, by which their calls begin: sending blocks hide at most what is sent.
  double computed = best.time;
  for (const int tile : tiles) computed = std::min(computed, computing(tile, blocks));
  if (place.ranks == 1 || best.time < leastSendingTime || computed * leastGatherGain >= best.time) return best;
  for (const int tile : tiles) {
    const int cluster = cutlassTiles[tile].clusterRows * cutlassTiles[tile].clusterColumns;
    const int most = std::min(mostGatherBlocks, blocks / 4);
    const int least = (leastGatherBlocks + cluster - 1) / cluster * cluster;
    for (int sending = least; sending <= most; sending += cluster) offer(tile, sending);
  }
  return best;
}

/// The plan that is estimated to be the fastest, for a place with kernels of CUTLASS.
inline CutlassGemmPlan planCutlassGemm(const GemmPlace& place, const GemmLayer& layer, std::size_t rows) {
  if (layer.collective == GemmCollective::AllGather) return planCutlassGather(place, layer, rows);
  const CutlassGemmSizes sizes(place, layer, rows);
  const GemmBytes& bytes = sizes.bytes;
  const int n = sizes.n, blocks = place.cutlassBlocks;
  const auto time = [&](int tile, int computing) {
    return sizes.timeOf(tile, computing, place.rates, place.rates.cutlassTiles);
  };
  // In a block that computes, stores for the link are in the way of the loads of the multiplication.
  const auto plan = [&](int tile) {
    return CutlassGemmPlan{tile, 0, slowedByEachOther(time(tile, blocks), bytes.sent / gemmLinkBytes)};
  };
  const CutlassGemmTiles tiles = cutlassGemmTiles(layer.operands, false);
  const int wide = tiles.tiles[0], narrow = tiles.tiles[1];
  const CutlassGemmPlan plain = plan(cutlassGemmTileFor(tiles, sizes.m, n, sizes.k, blocks));
  const bool reducesToAll = layer.collective == GemmCollective::AllReduce;
  // Where the link is the bound, there is little to multiply. Of fp8: bf16 has been measured with the gain below alone.
  const bool isFp8 = layer.operands != DataType::BFLOAT16, addsUpSums = isFp8 && !layer.fastAccumulation;
  const bool isBoundByLink = isFp8 && bytes.sent / gemmLinkBytes > time(narrow, blocks);
  const double leastGain = !reducesToAll || isBoundByLink ? 1 : (addsUpSums ? leastSendingGainFp8 : leastSendingGain);
  CutlassGemmPlan best = plain;
  // With the narrow tile of bfloat16 one is summed while the next is multiplied; and narrow ones are in smaller pieces
  // for the queues, but add up sums of fp8 more slowly. Most layers are spared the search, by which their calls begin:
  // fewer blocks do not compute faster.
  const auto offerSending = [&](int tile) {
    if (plain.time < leastSendingTime || leastGain * time(tile, blocks) >= plain.time) return;
    const CutlassTile& shape = cutlassTiles[tile];
    const int cluster = shape.clusterRows * shape.clusterColumns;
    for (int sending = cluster; sending <= blocks / 4; sending += cluster) {
      const double rate = std::min(gemmLinkBytes, sending * sendingBlockBytes);
      const double both = beside(time(tile, blocks - sending), bytes.sent / rate);
      if (both < best.time && leastGain * both < plain.time) best = {tile, sending, both};
    }
  };
  offerSending(narrow);
  if (isBoundByLink && !reducesToAll && plain.time >= leastWideSendingTime) offerSending(wide);
  if (!reducesToAll) return best;
  const double peers = place.ranks - 1;
  // Not compared with the plans below, and by how much these are estimated to be shorter does not matter to the form of
  // the call: where the link is about the bound, the estimate of narrow tiles without sending blocks is up to a third
  // too low.
  if (best.sendingBlocks > 0) {
    best.time += lastResults * peers * std::min(1.0, static_cast<double>(rows) / lastResultRows);
    return best;
  }
  // All blocks end their last tiles, which are own ones, at about the same time; and a block takes as long to send one
  // to one rank as the link would if all of them did.
  const auto withLastRound = [&](CutlassGemmPlan of) {
    const CutlassTile& shape = cutlassTiles[of.tile];
    const double tile = double{1} * shape.rows * shape.columns;
    const double own = std::min<double>(blocks, static_cast<double>(rows) * n / tile / place.ranks);
    of.time +=
        std::max(0.0, std::max<double>(own * peers, blocks) * tile * gemmElementBytes / gemmLinkBytes - hiddenResults);
    return of;
  };
  const CutlassGemmPlan ofWide = withLastRound(plan(wide)), ofNarrow = withLastRound(plan(narrow));
  return ofNarrow.time < ofWide.time ? ofNarrow : ofWide;
}

}  // namespace mscclpp::kernels
