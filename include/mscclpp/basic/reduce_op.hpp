// Reduction operators: types that combine two accumulators and finish the result over all ranks.
#pragma once

#include "mscclpp/arch/nan.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Reduction operators of the host API, with NCCL's values.
enum class ReduceOp { SUM = 0, PROD = 1, MAX = 2, MIN = 3, AVG = 4, NOP = 255 };

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

/// An operator that is chosen at run time, bitwise the same as the one it names: for rare types and operators, whose
/// kernels are then compiled once rather than once for each operator. All threads of a call, on all ranks, have the
/// same value.
struct RuntimeOp {
  ReduceOp op;

  /// Whether op names an operator. Collectives refuse others where calls are checked; with() takes them for SUM.
  MSCCLPP_HOST_DEVICE bool isValid() const {
    return op == ReduceOp::SUM || op == ReduceOp::PROD || op == ReduceOp::MAX || op == ReduceOp::MIN ||
           op == ReduceOp::AVG;
  }
  /// A number of the value. Where calls are checked, all ranks must have the same.
  MSCCLPP_HOST_DEVICE std::uint32_t number() const { return static_cast<std::uint32_t>(op); }

  /// Returns f(the operator that op names).
  template <class F>
  MSCCLPP_INLINE auto with(const F& f) const {
    switch (op) {
      case ReduceOp::PROD:
        return f(Product{});
      case ReduceOp::MAX:
        return f(Max{});
      case ReduceOp::MIN:
        return f(Min{});
      case ReduceOp::AVG:
        return f(Average{});
      default:
        return f(Sum{});
    }
  }

  template <class A>
  MSCCLPP_INLINE A combine(A a, A b) const {
    return with([&](const auto& chosen) { return chosen.combine(a, b); });
  }
  template <class A>
  MSCCLPP_INLINE A finish(A total, int ranks) const {
    return with([&](const auto& chosen) { return chosen.finish(total, ranks); });
  }
};

static_assert(StatelessOperator<Sum> && StatelessOperator<Product> && StatelessOperator<Min> && StatelessOperator<Max>);
static_assert(StatelessOperator<Average> && !ChoosesOperator<Sum>);
static_assert(ReductionOperator<RuntimeOp, float> && ChoosesOperator<RuntimeOp> && !StatelessOperator<RuntimeOp>);

}  // namespace mscclpp
