// The arguments of a collective that reduces: an operator with state has its value in them.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Arguments with the value of an operator, the same on all ranks.
template <class Base, class Op>
struct OperatorArgs : Base {
  Op op;
};

namespace detail {

template <class Base, class Op>
struct ArgsWithOperatorOf {
  using Type = OperatorArgs<Base, Op>;
};
template <class Base, StatelessOperator Op>
struct ArgsWithOperatorOf<Base, Op> {
  using Type = Base;
};

}  // namespace detail

/// The arguments of a collective that reduces with operator Op: Base itself for an operator without state, otherwise
/// Base and a member `op`.
template <class Base, class Op>
using ArgsWithOperator = typename detail::ArgsWithOperatorOf<Base, Op>::Type;

/// The operator of a call with arguments args.
template <class Op, class Args>
MSCCLPP_INLINE Op operatorOf([[maybe_unused]] const Args& args) {
  if constexpr (StatelessOperator<Op>) {
    return Op{};
  } else {
    return args.op;
  }
}

/// Whether a call with arguments args can run with its operator: false if that has a member isValid() which says so.
template <class Op, class Args>
MSCCLPP_HOST_DEVICE bool acceptsOperator([[maybe_unused]] const Args& args) {
  if constexpr (requires(const Op& op) { op.isValid(); }) {
    return operatorOf<Op>(args).isValid();
  } else {
    return true;
  }
}

}  // namespace mscclpp
