// Reduce-scatter with a count for each rank: every rank contributes args.counts[r] elements for rank r, and gets the
// reduction of those for it.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/offset_access.hpp"
#include "mscclpp/collective/operator_args.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/collective/variable_counts.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A reduce-scatter of elements T under operator Op, with a different number of results on each rank. args.counts[r]:
/// the elements of rank r's result, any number, the same on all ranks; args.offsets[r]: where the part for rank r
/// begins in this rank's input, in elements; args.count: at least every count, and the same on all ranks. If Op has
/// state, args.op is its value.
///
/// run() is called by every thread of every block of `grid`, on every rank, also one that gets nothing, with the same
/// counts, numbers of blocks and threads, and config. Calls on the same scratch must not overlap in time (use one
/// stream). The reduction is in rank order, in Accumulator<T>, and rounds once: the bits are the same in every run and
/// those of an all-reduce. With args.count of zero it returns at once. A wait that fails leaves its record in
/// args.wait's control block; the output is then meaningless. Over packets, a rank that gets nothing does not wait
/// for its peers, until it is several calls ahead of them.
///
/// source(first, valid) is called once for each pack of each part of this rank's contribution: element i of the part
/// for rank r has index args.offsets[r] + i. sink(first, pack, valid) is called once for each pack of this rank's
/// result; first is an index in it, from 0. So `first` is a multiple of packSize<T> for the sink only.
///
/// In place: the result may replace this rank's part of the input, output == input + args.offsets[rank], if the parts
/// do not overlap. Otherwise input and output do not overlap.
template <class T, class Op, CollectiveConfig config>
struct ReduceScatterV : VariableCounts<T, config.common()> {
  static_assert(ReductionOperator<Op, Accumulator<T>>,
                "Op must have combine() and finish() for Accumulator<T>: see ReductionOperator in basic/concepts.hpp");

  using Base = VariableCounts<T, config.common()>;
  using Operator = Op;
  /// Those of Base, and `op` if Op has state.
  using Args = ArgsWithOperator<typename Base::Args, Op>;

  /// As in VariableCounts; and whether the operator is valid.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return Base::accepts(args, shape) && acceptsOperator<Op>(args);
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    using namespace stage;
    Base::template checkSourceAndSink<Source, Sink>();
    return Base::template withSession<ReduceScatterV>(grid, args, TraceId::ReduceScatter, [&](auto& session) {
      constexpr int inputs = 0;
      const int rank = args.team.rank();
      const Op op = operatorOf<Op>(args);
      const typename Base::Slices slices(args.counts, args.offsets, args.count);
      const typename Base::Message result(args.counts[rank], args.count);
      const OffsetSource<Source> ownPart(source, args.offsets[rank]);
      return session.run(eachPeer(slices) | from(source) | send<inputs>(),
                         ownSlice(result) | from(ownPart) | reduce<inputs>(op) | into(sink));
    });
  }
};
static_assert(Collective<ReduceScatterV<float, Sum, CollectiveConfig{}>>);

}  // namespace mscclpp
