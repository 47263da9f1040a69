// The source of a call whose reduction may have a factor.
#pragma once

#include "kernel_call.hpp"
#include "mscclpp/basic/scaled_source.hpp"

namespace mscclpp::kernels {

/// Whether a reduction is a sum without a factor, for which there are specialized kernels.
inline bool isPlainSum(const Reduction& reduction) {
  return reduction.op == ReduceOp::SUM && reduction.factor == nullptr;
}

/// An input, multiplied by the factor of its reduction, if it has one.
template <class T>
ScaledArraySource<T> scaledSource(const void* input, const Reduction& reduction) {
  const auto* factor = static_cast<const T*>(reduction.factor);
  const bool isOnHost = reduction.factorLocation == ScalarLocation::Host;
  return ScaledArraySource<T>(static_cast<const T*>(input), factor == nullptr ? ScaleFactor<T>::none()
                                                            : isOnHost        ? ScaleFactor<T>::value(*factor)
                                                                              : ScaleFactor<T>::at(factor));
}
/// The input of a call.
template <class T>
ScaledArraySource<T> scaledSource(const KernelCall& call) {
  return scaledSource<T>(call.input, call.reduction);
}

}  // namespace mscclpp::kernels
