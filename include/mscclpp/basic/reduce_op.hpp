// Reduction operators: stateless types that combine two accumulators and finish the result over all ranks.
#pragma once

#include "mscclpp/arch/nan.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

namespace detail {

/// The unsigned type of A's size for a signed integer A, whose arithmetic wraps instead of overflowing; otherwise A.
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

/// finish() of operators whose combined value is the result.
struct IdentityFinish {
  template <class A>
  MSCCLPP_INLINE static A finish(A total, int /*ranks*/) {
    return total;
  }
};

}  // namespace detail

/// a + b. Integers wrap.
struct Sum : detail::IdentityFinish {
  template <class A>
  MSCCLPP_INLINE static A combine(A a, A b) {
    return detail::wrappingAdd(a, b);
  }
};

/// a * b. Integers wrap.
struct Product : detail::IdentityFinish {
  template <class A>
  MSCCLPP_INLINE static A combine(A a, A b) {
    return detail::wrappingMultiply(a, b);
  }
};

/// The minimum; a number wins over a NaN. IEEE 754 minimumNumber, except that of +0 and -0 the lower rank's is
/// returned.
struct Min : detail::IdentityFinish {
  template <class A>
  MSCCLPP_INLINE static A combine(A a, A b) {
    return b < a || a != a ? b : a;
  }
};

/// The maximum; a number wins over a NaN, and of +0 and -0 the lower rank's is returned.
struct Max : detail::IdentityFinish {
  template <class A>
  MSCCLPP_INLINE static A combine(A a, A b) {
    return a < b || a != a ? b : a;
  }
};

/// The sum divided by the number of ranks, once, at the end; integers round toward zero.
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

}  // namespace mscclpp
