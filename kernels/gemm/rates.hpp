// What GEMMs reach on kinds of GPUs, and the bytes that their collectives move: what their plans and the choice between
// them are estimated from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/kernels/fused_gemm.hpp"

namespace mscclpp::kernels {

/// The speed of a GEMM on a kind of GPU.
struct GemmSpeed {
  double teraflops;  ///< with many rows
  double bytes;      ///< of the weights that it reads in a microsecond, with few rows
  double start;      ///< microseconds that it takes beside that
};
struct GemmRates {
  std::string_view gpu;  ///< part of the GPU's name
  GemmSpeed own;         ///< of the library's kernels, the reduction of rows in their own memory included
  double reads;          ///< bytes of the weights that one multiprocessor reads in a microsecond at most
  GemmSpeed cublas;
  double cutlassTiles;  ///< what the tiles of kernels of CUTLASS take of cutlassTime()
  double cutlassStart;  ///< microseconds that these kernels take beside
  double ownFp8 = 1;    ///< teraflops of the library's kernels with operands of fp8, for one with bfloat16
  GemmSpeed cublasFp8;  ///< of cuBLAS with operands of fp8, whose kernels for few rows read slowly
};
/// The first one is for GPUs that are not in the table. H100: measured on one (bench/results/h100_gemm.txt), with the
/// H200's rates for CUTLASS and for fp8, by the speed of its memory; H200: measured on two
/// (bench/results/h200_x2_gemm_sends.txt, few rows and all-gathers h200_x2_gemm.txt, fp8 h200_x2_gemm_fp8.txt).
inline constexpr GemmRates gemmRates[] = {
    {"H100", {180, 3.06e6, 4.5}, 35.5e3, {770, 3.0e6, 4}, 0.93, 12, 1.28, {1450, 2.0e6, 8}},
    {"H200", {180, 4.38e6, 6.8}, 50.7e3, {770, 4.28e6, 4}, 0.93, 12, 1.28, {1450, 2.9e6, 8}},
};

/// Bytes of an element of a product, and of an operand.
inline constexpr double gemmElementBytes = 2;
inline double operandBytes(const GemmLayer& layer) {
  return static_cast<double>(sizeOf(layer.operands));
}
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

/// With GemmLayer::fastAccumulation: the speed of cuBLAS, and what the tiles of CUTLASS take, of those without
/// (bench/results/h200_x2_gemm_fp8_fast.txt; tiles of 256 columns 0.94). Plans have the rates of calls without: the
/// estimates of those without sending blocks are too low where the link is about the bound, the more the shorter the
/// tiles are.
inline constexpr double fastCublas = 1.07, fastCutlassTiles = 0.88;

/// The rates for the operands of a layer.
inline GemmRates ratesFor(GemmRates rates, const GemmLayer& layer) {
  if (layer.operands == DataType::BFLOAT16) return rates;
  rates.own.teraflops *= rates.ownFp8;
  rates.cublas = rates.cublasFp8;
  if (layer.fastAccumulation) rates.cublas.teraflops *= fastCublas;
  return rates;
}

/// Where a call runs.
struct GemmPlace {
  GemmRates rates;    ///< of the GPU, for the operands of the layer
  int blocks;         ///< of the library's kernels, at most: one on a multiprocessor
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
  const auto d = [](std::size_t value) { return static_cast<double>(value); };
  const bool gathers = layer.collective == GemmCollective::AllGather;
  const double message = d(rows) * (gathers ? operandBytes(layer) * d(layer.depth) : gemmElementBytes * d(layer.width));
  const double share = static_cast<double>(ranks - 1) / ranks;
  return {operandBytes(layer) * d(layer.width) * d(layer.depth), message,
          message * share * (layer.collective == GemmCollective::AllReduce ? 2 : 1)};
}

/// Microseconds of a GEMM of so many of a call's rows, at a speed.
inline double gemmTime(const GemmSpeed& speed, const GemmLayer& layer, double rows) {
  const double elements = static_cast<double>(layer.width) * static_cast<double>(layer.depth);
  return speed.start + std::max(2e-6 * rows * elements / speed.teraflops, operandBytes(layer) * elements / speed.bytes);
}

}  // namespace mscclpp::kernels
