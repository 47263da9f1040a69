// Reduction operators. Each combines two accumulators and finishes the result over all ranks; none has state.
#pragma once

#include "mscclpp/arch/nan.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

namespace detail {

/// The type whose arithmetic wraps where that of A, a signed integer, would overflow; otherwise A.
template <class A>
struct WrappingOf {
  using Type = A;
};
template <>
struct WrappingOf<std::int32_t> {
  using Type = std::uint32_t;
};
template <>
struct WrappingOf<std::int64_t> {
  using Type = std::uint64_t;
};

template <class A>
MSCCLPP_INLINE A wrappingAdd(A a, A b) {
  using Wrapping = typename WrappingOf<A>::Type;
  return static_cast<A>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
}
template <class A>
MSCCLPP_INLINE A wrappingMultiply(A a, A b) {
  using Wrapping = typename WrappingOf<A>::Type;
  return static_cast<A>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
}

/// The part of an operator whose result is what was combined.
struct TotalIsResult {
  template <class A>
  MSCCLPP_INLINE static A finish(A total, int /*ranks*/) {
    return total;
  }
};

}  // namespace detail

/// a + b. Integers wrap.
struct Sum : detail::TotalIsResult {
  template <class A>
  MSCCLPP_INLINE static A combine(A a, A b) {
    return detail::wrappingAdd(a, b);
  }
};

/// a * b. Integers wrap.
struct Product : detail::TotalIsResult {
  template <class A>
  MSCCLPP_INLINE static A combine(A a, A b) {
    return detail::wrappingMultiply(a, b);
  }
};

/// The smaller; a number wins over a NaN (IEEE 754 minimumNumber but for the sign of equal zeros, where the lower rank's stays).
struct Min : detail::TotalIsResult {
  template <class A>
  MSCCLPP_INLINE static A combine(A a, A b) {
    return b < a || a != a ? b : a;
  }
};

/// The larger; a number wins over a NaN, and of equal zeros the lower rank's stays.
struct Max : detail::TotalIsResult {
  template <class A>
  MSCCLPP_INLINE static A combine(A a, A b) {
    return a < b || a != a ? b : a;
  }
};

/// The sum over the number of ranks, divided once at the end; integers round toward zero.
struct Average {
  template <class A>
  MSCCLPP_INLINE static A combine(A a, A b) {
    return detail::wrappingAdd(a, b);
  }
  template <class A>
  MSCCLPP_INLINE static A finish(A total, int ranks) {
    return total / static_cast<A>(ranks);
  }
};

/// A running reduction of packs of T in T's accumulator type. The order of `add` calls is the order of the arithmetic: callers go rank by rank from 0,
/// so that every rank computes the same bits.
template <class T, class Op>
class PackReducer {
 public:
  MSCCLPP_INLINE explicit PackReducer(const Pack<T>& first) {
    MSCCLPP_UNROLL
    for (int i = 0; i < packSize<T>; ++i) total_[i] = widen<T>(first[i]);
  }

  MSCCLPP_INLINE void add(const Pack<T>& next) {
    MSCCLPP_UNROLL
    for (int i = 0; i < packSize<T>; ++i) total_[i] = Op::combine(total_[i], widen<T>(next[i]));
  }

  /// The result over `ranks` packs, rounded once; a NaN is the one quiet NaN, whatever NaNs went in.
  MSCCLPP_INLINE Pack<T> finish(int ranks) const {
    Pack<T> result;
    MSCCLPP_UNROLL
    for (int i = 0; i < packSize<T>; ++i) result[i] = narrow<T>(arch::canonicalNan(Op::finish(total_[i], ranks)));
    return result;
  }

 private:
  Accumulator<T> total_[packSize<T>];
};

}  // namespace mscclpp
