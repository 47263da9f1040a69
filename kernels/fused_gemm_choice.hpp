// Which form of a GEMM with a collective is estimated to be the fastest: the library's or CUTLASS's kernels with the
// collective inside, or GEMMs of cuBLAS before, behind or beside what moves data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>

#include "kernels/cutlass/gemm_plan.hpp"
#include "kernels/gemm_rates.hpp"
#include "kernels/gpu/cublas_fp8.hpp"
#include "kernels/gpu/overlapped_gather_plan.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/fusion/gemm/packet_layout.hpp"
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

/// Whether cuBLAS multiplies fp8 of these sizes without a copy of the weights, of which all-gathers would make one for
/// each part.
inline bool multipliesInPlace(const GemmLayer& layer) {
  return layer.operands == DataType::BFLOAT16 ||
         (layer.width % cublasFp8Multiple == 0 && layer.depth % cublasFp8Multiple == 0);
}

/// Microseconds of each form of a call.
struct GemmEstimate {
  double fused;
  double cutlass;
  double serial;
  double overlapped = std::numeric_limits<double>::infinity();
};

/// With a norm all of it is predicted, from the rates of kernels without one: none has been measured.
inline GemmEstimate estimateGemm(const GemmPlace& place, const GemmLayer& layer, std::size_t rows) {
  constexpr double linkBytes = gemmLinkBytes, hop = gemmHop;
  // A collective behind a GEMM of cuBLAS, which it cannot overlap with: 5.3 to 5.7 measured for one row on two ranks.
  constexpr double collective = 5.5;
  constexpr double collectiveBytes = 325e3;
  constexpr double fusedNorm = 4, collectiveNorm = 1;
  const auto d = [](std::size_t value) { return static_cast<double>(value); };
  const GemmRates& rates = place.rates;
  const int ranks = place.ranks;
  const bool gathers = layer.collective == GemmCollective::AllGather;
  const bool reducesToAll = layer.collective == GemmCollective::AllReduce;
  const GemmBytes bytes = gemmBytes(layer, rows, ranks);
  const double message = bytes.message, sent = bytes.sent;
  const std::size_t columnTiles = ceilDivide(layer.width, fewRowsColumns);
  const auto gemm = [&](GemmSpeed speed) {
    speed.bytes = std::min(speed.bytes, d(columnTiles) * rates.reads);
    return gemmTime(speed, layer, d(rows));
  };
  // The library's kernels for few rows: rounds of tiles, one for each multiprocessor. In an all-gather each rank's rows
  // read the weights, all but the first time from the cache.
  const auto fewRows = [&](const FewRowsTile& tile) {
    const std::size_t reads = gathers ? static_cast<std::size_t>(ranks) : 1;
    const std::size_t tiles = reads * columnTiles;
    const auto all = static_cast<std::size_t>(rates.multiprocessors);
    // Of fp8 a multiprocessor works on more elements, which are fewer bytes.
    const double tileBytes =
        layer.operands == DataType::BFLOAT16 ? tile.bytes : tile.bytes * rates.ownFp8 * operandBytes(layer) / 2;
    const auto round = [&](std::size_t count) {
      return operandBytes(layer) * d(fewRowsColumns) * d(layer.depth) *
             std::max({1 / tileBytes, 1 / rates.reads, d(count) / (rates.own.bytes * d(reads))});
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

  // cuBLAS loses more of its speed with some of the rows, where these are of fp8. Their scales are gathered by one more
  // collective or copy, or with the rows (bench/results/h200_x2_gemm_fp8_fast.txt).
  constexpr double overlappedFp8 = 1.12, overlappedFastFp8 = 1.05;
  constexpr double serialScales = 4, overlappedScales = 3, cutlassScales = 3;
  const bool gathersScales = gathers && ranks > 1 && layer.operands != DataType::BFLOAT16;

  // With CUTLASS there is besides, with few rows, the way of the tiles to their sums, from each other rank.
  constexpr double lastSums = 15, lastSumRows = 512, mostLastSums = 22.5;
  double tiles = std::numeric_limits<double>::infinity();
  if (place.cutlassBlocks > 0) {
    const double exact = planCutlassGemm(place, layer, rows).time;
    tiles = exact;
    if (layer.fastAccumulation) {
      GemmPlace fast = place;
      fast.rates.cutlassTiles *= fastCutlassTiles;
      tiles = std::min(tiles, planCutlassGemm(fast, layer, rows).time);
    }
    // Among more than two ranks all-gathers by this kernel have been measured with an earlier version, whose tiles
    // waited where the link took long.
    constexpr double waitingTiles = 1.25, waitingStart = 15;
    if (gathers && ranks > 2 && sent / linkBytes > exact / 3) tiles = waitingTiles * tiles + waitingStart;
    tiles = gathers ? std::max(tiles, rates.cutlassStart) : tiles + rates.cutlassStart;
    if (gathersScales) tiles += cutlassScales;
  }
  // Of weights, which are read and written.
  const double copies = multipliesInPlace(layer) ? 0 : 2 * bytes.weights / rates.cublas.bytes;
  double overlapped = std::numeric_limits<double>::infinity();
  if (gathers && ranks > 1 && layer.width >= leastOverlappedWidth) {
    overlapped = planOverlappedGather(place, layer, rows).time;
    if (gathersScales) {
      overlapped = overlapped * (layer.fastAccumulation ? overlappedFastFp8 : overlappedFp8) + overlappedScales;
    }
  }
  // A norm begins when all tiles of a row have been counted, and lasts as long as a warp needs for a row.
  const double norm = layer.hasNorm ? fusedNorm : 0, serialNorm = layer.hasNorm ? collectiveNorm : 0;
  return {std::max(own, sentFused / linkBytes) + sentFused * std::min(1.0, lastRows / d(rows)) / linkBytes +
              hops * hop + norm,
          tiles + (gathers ? 0 : std::min(mostLastSums, lastSums * (ranks - 1) * std::min(1.0, lastSumRows / d(rows)))),
          gemm(rates.cublas) + collective + (gathersScales ? serialScales : 0) + serialNorm + sent / collectiveBytes +
              copies,
          overlapped};
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
          isSerial && layer.collective == GemmCollective::AllGather && place.ranks > 1 && multipliesInPlace(layer)};
}

/// What fusing has to gain by an estimate, to be preferred to a GEMM of cuBLAS; and what copies beside it have to gain
/// over kernels of CUTLASS, and over copies before it.
inline constexpr double leastGemmGain = 1.01, leastOverlapGain = 1.01, leastOverlapGainOverSerial = 1.035;

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
