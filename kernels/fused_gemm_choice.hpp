// Whether a GEMM with a collective inside, or a GEMM of cuBLAS and a collective of its own, is estimated to be faster:
// a table of rates, and the model that uses it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

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
  GemmSpeed own;         ///< of the library's kernels, the reduction of rows in their own memory included
  GemmSpeed cublas;
};
/// The first one is for GPUs that are not in the table. H100: measured (bench/results/h100_gemm.txt); H200: the same
/// with its memory.
inline constexpr GemmRates gemmRates[] = {
    {"H100", {180, 3.0e6, 4.5}, {800, 3.0e6, 4}},
    {"H200", {180, 4.2e6, 4.5}, {800, 4.2e6, 4}},
};

/// The index in gemmRates for a GPU.
inline std::size_t gemmRatesOf(std::string_view gpuName) {
  for (std::size_t i = 0; i < std::size(gemmRates); ++i) {
    if (gpuName.find(gemmRates[i].gpu) != std::string_view::npos) return i;
  }
  return 0;
}

/// The most rows of an all-reduce that takes one hop, which sends `ranks` - 1 times the rows, and of the kernels for
/// few rows, which are reduced in packets.
inline constexpr std::size_t narrowGemmRows = 32;
inline constexpr std::size_t mediumGemmRows = 128;

/// Microseconds of the two forms of a call.
struct GemmEstimate {
  double fused;
  double serial;
};

inline GemmEstimate estimateGemm(const GemmRates& rates, const GemmLayer& layer, std::size_t rows, int ranks) {
  constexpr double elementBytes = 2, linkBytes = 350e3, hop = 1.6, collective = 2.2;
  constexpr double collectiveBytes = 325e3;
  const auto d = [](std::size_t value) { return static_cast<double>(value); };
  const bool gathers = layer.collective == GemmCollective::AllGather;
  const bool reducesToAll = layer.collective == GemmCollective::AllReduce;
  const bool takesOneHop = reducesToAll && rows <= (ranks == 2 ? mediumGemmRows : narrowGemmRows);
  const double work = 2e-6 * d(rows) * d(layer.width) * d(layer.depth);  // millions of operations
  const double weights = elementBytes * d(layer.width) * d(layer.depth);
  const auto gemm = [&](const GemmSpeed& speed, double reads = 1) {
    return speed.start + std::max(work / speed.teraflops, reads * weights / speed.bytes);
  };
  // A tile has gathered rows of one rank: few rows of the others read the weights again, from the cache.
  const double reads = gathers && rows <= mediumGemmRows ? 1 + 0.2 * (ranks - 1) : 1;
  // What a rank sends, and what of it nothing can hide: the last rows.
  const double message = elementBytes * d(rows) * d(gathers ? layer.depth : layer.width);
  const double share = d(static_cast<std::size_t>(ranks - 1)) / ranks;
  const double sent = message * share * (reducesToAll ? 2 : 1);
  const double sentFused = takesOneHop ? message * (ranks - 1) : sent;
  constexpr double lastRows = 1024;
  const double last = sentFused * std::min(1.0, lastRows / d(rows)) / linkBytes;
  const double hops = reducesToAll && !takesOneHop ? 2 : 1;
  return {std::max(gemm(rates.own, reads), sentFused / linkBytes) + last + hops * hop,
          gemm(rates.cublas) + collective + sent / collectiveBytes};
}

}  // namespace mscclpp::kernels
