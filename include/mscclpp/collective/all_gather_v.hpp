// All-gather with a count for each rank: rank r contributes args.counts[r] elements, and every rank gets the
// contributions of all.
#pragma once

#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/offset_access.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/collective/variable_counts.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// An all-gather of elements T, of a different number from each rank. args.counts[r]: the elements of rank r's
/// contribution, any number, the same on all ranks; args.offsets[r]: where it begins in this rank's output, in
/// elements; args.count: at least every count, and the same on all ranks.
///
/// run() is called by every thread of every block of `grid`, on every rank, also one that contributes nothing, with the
/// same counts, numbers of blocks and threads, and config. Calls on the same scratch must not overlap in time (use one
/// stream). With args.count of zero it returns at once. A wait that fails leaves its record in args.wait's control
/// block; the output is then meaningless. Over packets, a rank that gets no elements from a peer does not wait for
/// it, until it is several calls ahead.
///
/// source(first, valid) is called once for each pack of this rank's contribution; first is an index in it, from 0.
/// sink(first, pack, valid) is called once for each pack of each contribution: element i of rank r has index
/// args.offsets[r] + i. So `first` is a multiple of packSize<T> for the source only. Contributions do not overlap in
/// the output; what is between them is not written.
///
/// In place: this rank's contribution may be at its position in the output, input == output + args.offsets[rank].
/// Otherwise input and output do not overlap.
template <class T, CollectiveConfig config>
struct AllGatherV : VariableCounts<T, config.common()> {
  using Base = VariableCounts<T, config.common()>;
  using typename Base::Args;

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    using namespace stage;
    Base::template checkSourceAndSink<Source, Sink>();
    return Base::template withSession<AllGatherV>(grid, args, TraceId::AllGather, [&](auto& session) {
      constexpr int inputs = 0;
      const int rank = args.team.rank();
      const typename Base::Message contribution(args.counts[rank], args.count);
      const typename Base::Slices slices(args.counts, args.offsets, args.count);
      const OffsetSink<Sink> ownPart(sink, args.offsets[rank]);
      return session.run(ownSlice(contribution) | from(source) | share<inputs>() | into(ownPart),
                         eachPeer(slices) | receive<inputs>() | into(sink));
    });
  }
};
static_assert(Collective<AllGatherV<float, CollectiveConfig{}>>);

}  // namespace mscclpp
