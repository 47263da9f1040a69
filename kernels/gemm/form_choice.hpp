// Which form of a GEMM with a collective a call has: the library's or CUTLASS's kernels with the collective inside, or
// GEMMs of cuBLAS before, behind or beside what moves data.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>

#include "kernels/gemm/estimate.hpp"

namespace mscclpp::kernels {

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
