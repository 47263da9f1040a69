// A source that multiplies the elements of an array by a factor: NCCL's pre-multiplied sum, with any operator.
#pragma once

#include "mscclpp/arch/nan.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A factor for the elements that a rank contributes: none, a value, or a value in memory.
template <class T>
class ScaleFactor {
 public:
  /// No factor: elements stay as they are, bit by bit.
  static MSCCLPP_HOST_DEVICE ScaleFactor none() { return ScaleFactor(Kind::None, nullptr, T{}); }
  static MSCCLPP_HOST_DEVICE ScaleFactor value(T factor) { return ScaleFactor(Kind::Value, nullptr, factor); }
  /// The value at `factor`, aligned, in memory that the calling threads can read; they read it for each pack. It may be
  /// written by work that is earlier in the stream, and does not change during the call.
  static MSCCLPP_HOST_DEVICE ScaleFactor at(const T* factor) { return ScaleFactor(Kind::Address, factor, T{}); }

  /// The pack times the factor: in Accumulator<T>, rounded to T. Integers wrap. Every NaN is then the canonical quiet
  /// NaN, but without a factor the pack is returned as it is.
  MSCCLPP_INLINE Pack<T> scale(const Pack<T>& pack) const {
    if (kind_ == Kind::None) return pack;
    const Accumulator<T> factor = widen<T>(kind_ == Kind::Address ? *address_ : value_);
    Pack<T> result;
    MSCCLPP_UNROLL
    for (int i = 0; i < packSize<T>; ++i) {
      result[i] = narrow<T>(arch::canonicalNan(Product::combine(widen<T>(pack[i]), factor)));
    }
    return result;
  }

 private:
  enum class Kind { None, Value, Address };
  MSCCLPP_HOST_DEVICE ScaleFactor(Kind kind, const T* address, T value)
      : kind_(kind), value_(value), address_(address) {}

  Kind kind_;
  T value_;
  const T* address_;
};

/// A source that reads an array, aligned to its elements, and multiplies each element by a factor, which may be none.
/// Ranks may have different factors. It does not access an array in the sense of ArrayAccess, whatever the factor:
/// where that is known to be none, ArraySource is faster, above all on a CPU, which copies blocks of an array.
template <class T>
class ScaledArraySource {
 public:
  MSCCLPP_HOST_DEVICE ScaledArraySource(const T* data, const ScaleFactor<T>& factor) : source_(data), factor_(factor) {}

  MSCCLPP_INLINE Pack<T> operator()(std::size_t first, int valid) const { return factor_.scale(source_(first, valid)); }

 private:
  ArraySource<T> source_;
  ScaleFactor<T> factor_;
};
static_assert(SourceOf<ScaledArraySource<float>, float> && !ArrayAccess<ScaledArraySource<float>>);

}  // namespace mscclpp
