// What an epilogue makes of the accumulators of a matrix product: functions of two neighbours in a row.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <cmath>
#endif

#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

// A pair operation is a const callable Vector<T, outputs>(row, column, first, second) with `outputs` 1 or 2: row and
// column are those of `first` in the product, whose element in the next column is `second`. With one output, column c
// of the product gives column c / 2 of the result. It is called once for each pair that has a column of the product;
// where the width is odd, `second` of the last pair is 0. Models: below.

/// Rounds each accumulator.
template <class T>
struct KeepPairs {
  static constexpr int outputs = 2;

  MSCCLPP_INLINE Vector<T, 2> operator()(std::size_t /*row*/, std::size_t /*column*/, float first, float second) const {
    return {narrow<T>(first), narrow<T>(second)};
  }
};

/// The gated activation of a feed-forward layer: first / (1 + exp(-first)) * second, rounded once. The rows of the
/// weights of gate and up projection alternate, gate first, so that a thread holds both results in registers.
template <class T>
struct GateBySilu {
  static constexpr int outputs = 1;

  MSCCLPP_INLINE Vector<T, 1> operator()(std::size_t /*row*/, std::size_t /*column*/, float first, float second) const {
    return {narrow<T>(first / (1.0f + expf(-first)) * second)};
  }
};

}  // namespace mscclpp
