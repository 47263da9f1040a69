// Reduce: every rank contributes args.count elements, and the root gets their reduction.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/equal_counts.hpp"
#include "mscclpp/collective/layout.hpp"
#include "mscclpp/collective/operator_args.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A reduction of elements T under operator Op to args.root. args.count: the elements of a rank's contribution, any
/// number. If Op has state, args.op is its value.
///
/// run() is called by every thread of every block of `grid`, on every rank, with the same count, root, numbers of
/// blocks and threads, and config. Calls on the same scratch must not overlap in time (use one stream). The reduction
/// is in rank order, in Accumulator<T>, and rounds once: the bits are the same in every run, whatever the root, and
/// those of an all-reduce. With zero elements it returns at once. A wait that fails leaves its record in args.wait's
/// control block; the output is then meaningless. Other ranks do not wait for the root to receive, until they are
/// several calls ahead of it.
///
/// source(first, valid) is called once for each pack, on every rank; sink(first, pack, valid) once for each pack, on
/// the root only. first is an index in the message.
///
/// In place: input == output. Otherwise the two do not overlap on the root. Other ranks have no output.
template <class T, class Op, CollectiveConfig config>
struct Reduce : RootedCounts<T, config.common()> {
  static_assert(ReductionOperator<Op, Accumulator<T>>,
                "Op must have combine() and finish() for Accumulator<T>: see ReductionOperator in basic/concepts.hpp");

  using Base = RootedCounts<T, config.common()>;
  using Operator = Op;
  /// Those of Base, and `op` if Op has state.
  using Args = ArgsWithOperator<typename Base::Args, Op>;

  /// As in Base; and whether the operator is valid.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return Base::accepts(args, shape) && acceptsOperator<Op>(args);
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    using namespace stage;
    Base::template checkSourceAndSink<Source, Sink>();
    return Base::template withSession<Reduce>(grid, args, TraceId::ReduceToRoot, [&](auto& session) {
      constexpr int inputs = 0;
      const Op op = operatorOf<Op>(args);
      const WholeMessage<T, typename Base::Index> message(args.count);
      return session.run(withPeer(message, args.root) | from(source) | send<inputs>(),
                         ownSlice(message, args.root) | from(source) | reduce<inputs>(op) | into(sink));
    });
  }
};
static_assert(Collective<Reduce<float, Sum, CollectiveConfig{}>>);

}  // namespace mscclpp
