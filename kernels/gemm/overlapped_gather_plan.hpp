// How a call in GemmForm::Overlapped runs, and how long it takes by an estimate.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "kernels/gemm/rates.hpp"

namespace mscclpp::kernels {

/// What cuBLAS reaches of its speed with up to so many rows, as the parts of a call have.
inline constexpr double fewRowsSpeed = 0.86, fewRowsOfCublas = 256;

/// How a call in GemmForm::Overlapped runs.
struct OverlappedGatherPlan {
  std::size_t parts;  ///< in which the rows of each rank are copied and multiplied
  double time;        ///< microseconds
};

/// Copies by the copy engines: bytes in a microsecond, and microseconds before the first one, of each one between two
/// ranks and among more, and between its end and the GEMM that waits for it. Fitted to calls on two and on four H200
/// (bench/results/h200_x2_gemm_gathers.txt, h200_x4_gemm_gathers.txt).
inline constexpr double copyEngineBytes = 390e3, copyEngineStart = 13, copyEnginePairCopy = 8, copyEngineTeamCopy = 10,
                        copyEngineEnd = 3;

/// Narrower layers have not been measured, and this form is not estimated for them.
inline constexpr std::size_t leastOverlappedWidth = 1024;

/// The plan that is estimated to be the fastest: with many parts the GEMM of the first ones runs beside the copies of
/// the next, with few all GEMMs are long.
inline OverlappedGatherPlan planOverlappedGather(const GemmPlace& place, const GemmLayer& layer, std::size_t rows) {
  constexpr std::size_t mostParts = 8;
  const double peers = place.ranks - 1, own = static_cast<double>(rows) / place.ranks;
  const double ownBytes = gemmBytes(layer, rows, place.ranks).message / place.ranks;
  const auto multiply = [&](double count) {
    GemmSpeed speed = place.rates.cublas;
    if (count <= fewRowsOfCublas) speed.teraflops *= fewRowsSpeed;
    return gemmTime(speed, layer, count);
  };
  const double ofEachCopy = place.ranks == 2 ? copyEnginePairCopy : copyEngineTeamCopy;
  OverlappedGatherPlan best{1, std::numeric_limits<double>::infinity()};
  for (std::size_t parts = 1; parts <= mostParts; parts *= 2) {
    const auto share = static_cast<double>(parts);
    const double copy = ofEachCopy + ownBytes / share / copyEngineBytes;
    const double part = copyEngineEnd + multiply(own / share);
    double time = multiply(own);
    for (double step = 1; step <= peers * share; ++step) time = std::max(time, copyEngineStart + step * copy) + part;
    if (time < best.time) best = {parts, time};
  }
  return best;
}

}  // namespace mscclpp::kernels
