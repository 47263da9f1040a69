// What an epilogue makes of the accumulators of a matrix product: functions of two neighbours in a row.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <cmath>
#endif

#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

// A pair operation is a const callable Vector<T, outputs>(row, column, first, second) with `outputs` 1 or 2: row and
// column are those of `first` in the product, whose element in the next column is `second`. With one output, column c
// of the product gives column c / 2 of the result. It is called once for each pair that has a column of the product;
// where the width is odd, `second` of the last pair is 0. At the lower edge of the product it is also called for rows
// that are none, whose results are dropped. Models: below.

/// Rounds each accumulator.
template <class T>
struct KeepPairs {
  static constexpr int outputs = 2;

  MSCCLPP_INLINE Vector<T, 2> operator()(std::size_t /*row*/, std::size_t /*column*/, float first, float second) const {
    return {narrow<T>(first), narrow<T>(second)};
  }
};

/// Multiplies each accumulator by the scale of its row of input times that of its row of weights, as a product of
/// operands of fp8 needs it. Rows without a scale give 0. Then: the pair operation that follows, for which it need not
/// be rounded.
template <class T, class Then = KeepPairs<T>>
struct ScalePairs {
  static constexpr int outputs = Then::outputs;

  const float* inputScales;   ///< of `rows` rows of the product, from firstRow on
  const float* weightScales;  ///< of its columns
  std::size_t rows;
  std::size_t columns;
  [[no_unique_address]] Then then{};
  std::size_t firstRow = 0;

  /// The same for other rows of the product, with their scales.
  MSCCLPP_INLINE ScalePairs ofRows(const float* scales, Range range) const {
    return {scales, weightScales, range.size(), columns, then, range.begin};
  }

  MSCCLPP_INLINE Vector<T, outputs> operator()(std::size_t row, std::size_t column, float first, float second) const {
    const float scale = row - firstRow < rows ? inputScales[row - firstRow] : 0.0f;
    return then(row, column, first * (scale * weightScales[column]),
                column + 1 < columns ? second * (scale * weightScales[column + 1]) : 0.0f);
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
