// Estimates of how long each form of a GEMM with a collective takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "kernels/gemm/cublas_fp8.hpp"
#include "kernels/gemm/cutlass/gemm_plan.hpp"
#include "kernels/gemm/few_rows_tiles.hpp"
#include "kernels/gemm/overlapped_gather_plan.hpp"
#include "kernels/gemm/rates.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/fusion/gemm/packet_layout.hpp"
#include "mscclpp/kernels/fused_gemm.hpp"

namespace mscclpp::kernels {

/// Whether cuBLAS multiplies fp8 of these sizes without a copy of the weights, of which all-gathers would make one for
/// each part.
inline bool multipliesInPlace(const GemmLayer& layer) {
  return layer.operands == DataType::BFLOAT16 ||
         (layer.width % cublasFp8Multiple == 0 && layer.depth % cublasFp8Multiple == 0);
}

/// Microseconds of each form of a call; infinite: the call cannot have it.
struct GemmEstimate {
  double fused;
  double cutlass;
  double serial;
  double overlapped = std::numeric_limits<double>::infinity();
};

/// The estimates of one call. With a norm all of them are predicted, from the rates of kernels without one: none has
/// been measured.
class GemmEstimator {
 public:
  GemmEstimator(const GemmPlace& place, const GemmLayer& layer, std::size_t rows)
      : place_(place), layer_(layer), rows_(rows), bytes_(gemmBytes(layer, rows, place.ranks)) {}

  /// The library's kernels: the multiplication or the link, whichever takes longer, and the last rows, which nothing
  /// can hide.
  double fused() const {
    constexpr double lastRows = 1024;
    constexpr double norm = 4;  // begins when all tiles of a row have been counted, and takes a warp so long for a row
    const FewRowsTile* const tile = fewRowsTileOf(layer_.collective, rows_, place_.ranks, layer_.hasNorm);
    const double computed = tile != nullptr ? fewRows(*tile) : multiplied(place_.rates.own);
    const bool takesOneHop =
        reducesToAll() && tile != nullptr &&
        (layer_.hasNorm || bytes_.message <= static_cast<double>(mostOneHopBytes(gemmHopBytes, place_.ranks)));
    // The second hop of rows with a norm has two arrays.
    const double sentInTwoHops = reducesToAll() && layer_.hasNorm ? bytes_.sent * 1.5 : bytes_.sent;
    const double sent = (takesOneHop ? bytes_.message * (place_.ranks - 1) : sentInTwoHops) / gemmLinkBytes;
    const double hops = reducesToAll() && !takesOneHop ? 2 : 1;
    return std::max(computed, sent) + sent * std::min(1.0, lastRows / rows()) + hops * gemmHop +
           (layer_.hasNorm ? norm : 0);
  }

  /// The kernels of CUTLASS.
  double cutlass() const {
    if (place_.cutlassBlocks == 0) return std::numeric_limits<double>::infinity();
    const double exact = planCutlassGemm(place_, layer_, rows_).time;
    double tiles = exact;
    if (layer_.fastAccumulation) {
      GemmPlace fast = place_;
      fast.rates.cutlassTiles *= fastCutlassTiles;
      tiles = std::min(tiles, planCutlassGemm(fast, layer_, rows_).time);
    }
    return gathers() ? cutlassGather(tiles, exact) : cutlassReduction(tiles);
  }

  /// A GEMM of cuBLAS, and a collective before or behind it.
  double serial() const {
    // Beside the GEMM, which it cannot overlap with: 5.3 to 5.7 measured for one row on two ranks.
    constexpr double collective = 5.5, collectiveBytes = 325e3;
    constexpr double scales = 4;  // by one more collective (bench/results/h200_x2_gemm_fp8_fast.txt)
    constexpr double norm = 1;
    // Of weights, which are read and written.
    const double copies = multipliesInPlace(layer_) ? 0 : 2 * bytes_.weights / place_.rates.cublas.bytes;
    return multiplied(place_.rates.cublas) + collective + (gathersScales() ? scales : 0) + (layer_.hasNorm ? norm : 0) +
           bytes_.sent / collectiveBytes + copies;
  }

  /// GEMMs of cuBLAS beside copies of what they multiply next.
  double overlapped() const {
    if (!gathers() || place_.ranks == 1 || layer_.width < leastOverlappedWidth) {
      return std::numeric_limits<double>::infinity();
    }
    const double time = planOverlappedGather(place_, layer_, rows_).time;
    if (!gathersScales()) return time;
    // cuBLAS loses more of its speed with some of the rows, where these are of fp8; and there is one more copy
    // (bench/results/h200_x2_gemm_fp8_fast.txt).
    constexpr double slower = 1.12, fastSlower = 1.05, scales = 3;
    return time * (layer_.fastAccumulation ? fastSlower : slower) + scales;
  }

 private:
  bool gathers() const { return layer_.collective == GemmCollective::AllGather; }
  bool reducesToAll() const { return layer_.collective == GemmCollective::AllReduce; }
  /// Of operands of fp8, whose scales are gathered with them.
  bool gathersScales() const { return gathers() && place_.ranks > 1 && layer_.operands != DataType::BFLOAT16; }
  double rows() const { return static_cast<double>(rows_); }
  std::size_t columnTiles() const { return ceilDivide(layer_.width, fewRowsColumns); }

  /// The multiplication at a speed.
  double multiplied(GemmSpeed speed) const {
    speed.bytes = std::min(speed.bytes, static_cast<double>(columnTiles()) * place_.rates.reads);
    return gemmTime(speed, layer_, rows());
  }

  /// The library's kernels for few rows: rounds of tiles, one for each block. In an all-gather each rank's rows read
  /// the weights, all but the first time from the cache.
  double fewRows(const FewRowsTile& tile) const {
    const GemmRates& rates = place_.rates;
    const std::size_t reads = gathers() ? static_cast<std::size_t>(place_.ranks) : 1;
    const std::size_t tiles = reads * columnTiles();
    const auto blocks = static_cast<std::size_t>(place_.blocks);
    // Of fp8 a multiprocessor works on more elements, which are fewer bytes.
    const double tileBytes =
        layer_.operands == DataType::BFLOAT16 ? tile.bytes : tile.bytes * rates.ownFp8 * operandBytes(layer_) / 2;
    const auto round = [&](std::size_t count) {
      return operandBytes(layer_) * static_cast<double>(fewRowsColumns) * static_cast<double>(layer_.depth) *
             std::max({1 / tileBytes, 1 / rates.reads,
                       static_cast<double>(count) / (rates.own.bytes * static_cast<double>(reads))});
    };
    return rates.own.start + static_cast<double>(tiles / blocks) * round(blocks) +
           (tiles % blocks > 0 ? round(tiles % blocks) : 0);
  }

  /// tiles: what is computed and sent; exact: the same without GemmLayer::fastAccumulation.
  double cutlassGather(double tiles, double exact) const {
    // Among more than two ranks these have been measured with an earlier version of the kernel, whose tiles waited
    // where the link took long.
    constexpr double waitingTiles = 1.25, waitingStart = 15;
    constexpr double scales = 3;  // with the rows
    if (place_.ranks > 2 && bytes_.sent / gemmLinkBytes > exact / 3) tiles = waitingTiles * tiles + waitingStart;
    return std::max(tiles, place_.rates.cutlassStart) + (gathersScales() ? scales : 0);
  }
  double cutlassReduction(double tiles) const {
    // With few rows, the way of the tiles to their sums, from each other rank.
    constexpr double lastSums = 15, lastSumRows = 512, mostLastSums = 22.5;
    return tiles + place_.rates.cutlassStart +
           std::min(mostLastSums, lastSums * (place_.ranks - 1) * std::min(1.0, lastSumRows / rows()));
  }

  const GemmPlace& place_;
  const GemmLayer& layer_;
  const std::size_t rows_;
  const GemmBytes bytes_;
};

inline GemmEstimate estimateGemm(const GemmPlace& place, const GemmLayer& layer, std::size_t rows) {
  const GemmEstimator of(place, layer, rows);
  return {of.fused(), of.cutlass(), of.serial(), of.overlapped()};
}

}  // namespace mscclpp::kernels
