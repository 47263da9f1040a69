// Which form of a GEMM with a collective is estimated to be the fastest: the library's or CUTLASS's kernels with the
// collective inside, or a GEMM of cuBLAS and a collective of its own. A table of rates, and the model that uses it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>

#include "kernels/cutlass/gemm_tiles.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/fusion/gemm/packet_layout.hpp"
#include "mscclpp/kernels/fused_gemm.hpp"

namespace mscclpp::kernels {

/// The speed of a GEMM of bfloat16 on a kind of GPU.
struct GemmSpeed {
  double teraflops;  ///< with many rows
  double bytes;      ///< of the weights that it reads in a microsecond, with few rows
  double start;      ///< microseconds that it takes beside that
};
struct GemmRates {
  std::string_view gpu;  ///< part of the GPU's name
  int multiprocessors;
  GemmSpeed own;  ///< of the library's kernels, the reduction of rows in their own memory included
  double reads;   ///< bytes of the weights that one multiprocessor reads in a microsecond at most
  GemmSpeed cublas;
  double cutlassTiles;  ///< what the tiles of kernels of CUTLASS take of cutlassTime()
  double cutlassStart;  ///< microseconds that these kernels take beside
};
/// The first one is for GPUs that are not in the table. H100: measured on one (bench/results/h100_gemm.txt), with the
/// H200's rates for CUTLASS, by the speed of its memory; H200: measured on two
/// (bench/results/h200_x2_gemm_sends.txt, few rows and all-gathers h200_x2_gemm.txt).
inline constexpr GemmRates gemmRates[] = {
    {"H100", 132, {180, 3.06e6, 4.5}, 35.5e3, {770, 3.0e6, 4}, 0.93, 12},
    {"H200", 132, {180, 4.38e6, 6.8}, 50.7e3, {770, 4.28e6, 4}, 0.93, 12},
};

/// A tile of the library's kernels for few rows.
struct FewRowsTile {
  std::size_t rows;
  double bytes;   ///< of the weights that a multiprocessor works on in a microsecond where reading is not the limit
  bool isShared;  ///< also of an all-gather, where a tile has rows of one rank, and of an all-reduce with a norm
};
inline constexpr FewRowsTile fewRowsTiles[] = {
    {16, 50e3, true}, {32, 33e3, false}, {64, 24.4e3, true}, {128, 15.7e3, false}};
inline constexpr std::size_t fewRowsColumns = 64;

/// Bytes that a rank sends over its link in a microsecond, microseconds of a hop, and what is sent in that time.
inline constexpr double gemmLinkBytes = 350e3, gemmHop = 1.6;
inline constexpr auto gemmHopBytes = static_cast<std::size_t>(gemmLinkBytes * gemmHop);

/// The index in gemmRates for a GPU.
inline std::size_t gemmRatesOf(std::string_view gpuName) {
  for (std::size_t i = 0; i < std::size(gemmRates); ++i) {
    if (gpuName.find(gemmRates[i].gpu) != std::string_view::npos) return i;
  }
  return 0;
}

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

/// Whether a collective of its own can have so many rows: a reduce-scatter and an all-gather have equal parts, and no
/// norm.
inline bool serialGemmAccepts(const GemmLayer& layer, std::size_t rows, int ranks) {
  return layer.collective == GemmCollective::AllReduce ||
         (!layer.hasNorm && rows % static_cast<std::size_t>(ranks) == 0);
}
/// Whether the library's kernels can serve the calls of a layer.
inline bool fusedGemmAccepts(const GemmLayer& layer) {
  return !layer.hasNorm || layer.width <= mostFusedNormWidth;
}

/// Where a call runs.
struct GemmPlace {
  GemmRates rates;    ///< of the GPU
  int cutlassBlocks;  ///< of kernels of CUTLASS; 0: there are none
  int ranks;
};

/// Bytes of a call.
struct GemmBytes {
  double weights;
  double message;  ///< the product, or the gathered inputs
  double sent;     ///< of them by a rank
};
inline GemmBytes gemmBytes(const GemmLayer& layer, std::size_t rows, int ranks) {
  constexpr double elementBytes = 2;
  const auto d = [](std::size_t value) { return static_cast<double>(value); };
  const bool gathers = layer.collective == GemmCollective::AllGather;
  const double message = elementBytes * d(rows) * d(gathers ? layer.depth : layer.width);
  const double share = static_cast<double>(ranks - 1) / ranks;
  return {elementBytes * d(layer.width) * d(layer.depth), message,
          message * share * (layer.collective == GemmCollective::AllReduce ? 2 : 1)};
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

/// Copies by the copy engines to the other rank: bytes in a microsecond, and the microseconds of their start and of the
/// barrier after them, for which the GEMM of the other rank's rows waits. Fitted to calls between two H200
/// (bench/results/h200_x2_gemm_gathers.txt). Among more ranks nothing has been measured, and the form is not estimated:
/// there each step of the copies has a barrier, and the other ranks' rows may be two parts.
inline constexpr double copyEngineBytes = 345e3, copyEngineStep = 18, copyEngineEnd = 5;
inline constexpr int overlappedRanks = 2;

/// What cuBLAS reaches of its speed with up to so many rows, as the parts of a call have.
inline constexpr double fewRowsSpeed = 0.86, fewRowsOfCublas = 256;

/// Microseconds of each form of a call.
struct GemmEstimate {
  double fused;
  double cutlass;
  double serial;
  double overlapped = std::numeric_limits<double>::infinity();
};

/// With a norm all of it is predicted, from the rates of kernels without one: none has been measured.
inline GemmEstimate estimateGemm(const GemmPlace& place, const GemmLayer& layer, std::size_t rows) {
  constexpr double elementBytes = 2, linkBytes = gemmLinkBytes, hop = gemmHop;
  // A collective behind a GEMM of cuBLAS, which it cannot overlap with: 5.3 to 5.7 measured for one row on two ranks.
  constexpr double collective = 5.5;
  constexpr double collectiveBytes = 325e3;
  constexpr double fusedNorm = 4, collectiveNorm = 1;
  const auto d = [](std::size_t value) { return static_cast<double>(value); };
  const GemmRates& rates = place.rates;
  const int ranks = place.ranks;
  const bool gathers = layer.collective == GemmCollective::AllGather;
  const bool reducesToAll = layer.collective == GemmCollective::AllReduce;
  const double work = 2e-6 * d(rows) * d(layer.width) * d(layer.depth);  // millions of operations
  const auto [weights, message, sent] = gemmBytes(layer, rows, ranks);
  const std::size_t columnTiles = ceilDivide(layer.width, fewRowsColumns);
  // share: of the rows.
  const auto gemm = [&](const GemmSpeed& speed, double share = 1) {
    return speed.start +
           std::max(work * share / speed.teraflops, weights / std::min(speed.bytes, d(columnTiles) * rates.reads));
  };
  const auto gemmPart = [&](double share) {
    GemmSpeed speed = rates.cublas;
    if (d(rows) * share <= fewRowsOfCublas) speed.teraflops *= fewRowsSpeed;
    return gemm(speed, share);
  };
  // The library's kernels for few rows: rounds of tiles, one for each multiprocessor. In an all-gather each rank's rows
  // read the weights, all but the first time from the cache.
  const auto fewRows = [&](const FewRowsTile& tile) {
    const std::size_t reads = gathers ? static_cast<std::size_t>(ranks) : 1;
    const std::size_t tiles = reads * columnTiles;
    const auto all = static_cast<std::size_t>(rates.multiprocessors);
    const auto round = [&](std::size_t count) {
      return elementBytes * d(fewRowsColumns) * d(layer.depth) *
             std::max({1 / tile.bytes, 1 / rates.reads, d(count) / (rates.own.bytes * d(reads))});
    };
    return rates.own.start + d(tiles / all) * round(all) + (tiles % all > 0 ? round(tiles % all) : 0);
  };
  const FewRowsTile* const tile = fewRowsTileOf(layer.collective, rows, ranks, layer.hasNorm);
  const double own = tile != nullptr ? fewRows(*tile) : gemm(rates.own);
  // What a rank sends, and what of it nothing can hide: the last rows.
  const bool takesOneHop =
      reducesToAll && tile != nullptr && (layer.hasNorm || message <= d(mostOneHopBytes(gemmHopBytes, ranks)));
  // The second hop of rows with a norm has two arrays.
  const double sentInTwoHops = reducesToAll && layer.hasNorm ? sent * 1.5 : sent;
  const double sentFused = takesOneHop ? message * (ranks - 1) : sentInTwoHops;
  constexpr double lastRows = 1024;
  const double hops = reducesToAll && !takesOneHop ? 2 : 1;

  // With CUTLASS there are besides: with few rows the way of the tiles to their sums, and in two hops the way of the
  // last results. Results that have arrived before are stored meanwhile.
  constexpr double lastSums = 15, lastSumRows = 512, lastResults = 10, lastResultRows = 1024;
  // And tiles of an all-gather wait for rows, where the link takes more than half as long as the multiplication.
  constexpr double waitingTiles = 1.15;
  const bool waits = gathers && sent / linkBytes > work / rates.cublas.teraflops / 2;
  const double tiles = place.cutlassBlocks > 0 ? planCutlassGemm(place, layer, rows).time * (waits ? waitingTiles : 1)
                                               : std::numeric_limits<double>::infinity();
  // A norm begins when all tiles of a row have been counted, and lasts as long as a warp needs for a row.
  const double norm = layer.hasNorm ? fusedNorm : 0, serialNorm = layer.hasNorm ? collectiveNorm : 0;
  return {std::max(own, sentFused / linkBytes) + sentFused * std::min(1.0, lastRows / d(rows)) / linkBytes +
              hops * hop + norm,
          rates.cutlassStart + tiles + (gathers ? 0 : lastSums * std::min(1.0, lastSumRows / d(rows))) +
              (reducesToAll ? lastResults * std::min(1.0, d(rows) / lastResultRows) : 0),
          gemm(rates.cublas) + collective + serialNorm + sent / collectiveBytes,
          gathers && ranks == overlappedRanks
              ? std::max(gemmPart(1.0 / ranks), copyEngineStep + message / ranks / copyEngineBytes) + copyEngineEnd +
                    gemmPart(1 - 1.0 / ranks)
              : std::numeric_limits<double>::infinity()};
}

/// The forms that a call can have.
struct GemmForms {
  bool cutlass;
  bool serial;
  bool fused = true;  ///< any sizes, but for long rows with a norm
  bool overlapped = false;
};
/// hasSerial: there are cuBLAS and a Collectives. Without a form the call cannot be served.
inline GemmForms formsOf(const GemmPlace& place, const GemmLayer& layer, std::size_t rows, bool hasSerial) {
  const bool isSerial = hasSerial && serialGemmAccepts(layer, rows, place.ranks);
  return {place.cutlassBlocks > 0 && cutlassAccepts(layer, rows, place.ranks), isSerial, fusedGemmAccepts(layer),
          isSerial && layer.collective == GemmCollective::AllGather && place.ranks > 1};
}

/// What fusing has to gain by an estimate, to be preferred to a GEMM of cuBLAS; and what copies beside it have to gain
/// over kernels of CUTLASS, which lose less of their speed in long calls, and over copies before it.
inline constexpr double leastGemmGain = 1.01, leastOverlapGain = 1.05, leastOverlapGainOverSerial = 1.02;

/// The fastest form by an estimate, or the preferred one if the call can have it. There is one.
inline GemmForm chooseGemm(const GemmEstimate& estimate, GemmForms forms, std::optional<GemmForm> preferred = {}) {
  const auto has = [&](GemmForm form) {
    switch (form) {
      case GemmForm::Fused:
        return forms.fused;
      case GemmForm::Cutlass:
        return forms.cutlass;
      case GemmForm::Serial:
        return forms.serial;
      case GemmForm::Overlapped:
        return forms.overlapped;
    }
    return false;
  };
  if (preferred && has(*preferred)) return *preferred;
  GemmForm best = GemmForm::Fused;
  double time = std::numeric_limits<double>::infinity();
  // gain: over the best one so far.
  const auto offer = [&](GemmForm form, double estimated, double gain = 1) {
    if (!has(form) || estimated * gain >= time) return;
    best = form;
    time = estimated;
  };
  offer(GemmForm::Fused, estimate.fused);
  offer(GemmForm::Cutlass, estimate.cutlass);
  offer(GemmForm::Serial, estimate.serial, 1 / leastGemmGain);
  const bool overlapGains = (!forms.cutlass || estimate.overlapped * leastOverlapGain < estimate.cutlass) &&
                            (!forms.serial || estimate.overlapped * leastOverlapGainOverSerial < estimate.serial);
  if (overlapGains) offer(GemmForm::Overlapped, estimate.overlapped);
  return best;
}

}  // namespace mscclpp::kernels
