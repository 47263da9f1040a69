// All-to-all with a count for each pair of ranks: every rank sends args.sendCounts[r] elements to rank r.
#pragma once

#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/offset_access.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/collective/variable_counts.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The arguments of an AllToAllV. `count` is an upper bound of the counts of all pairs of ranks, and the same on all of
/// them: it determines the slots and the number of steps, on which the two ends of each pair of blocks must agree, and
/// no rank knows the counts of all pairs. The largest of them is best: a greater bound makes a pipeline take steps
/// without data.
template <int Ranks, class Scratch>
struct AllToAllVArgs : CollectiveArgs<Ranks, Scratch> {
  PerRank<Ranks> sendCounts;      ///< [r]: elements for rank r; its receiveCounts[rank]; may be 0
  PerRank<Ranks> sendOffsets;     ///< [r]: the first of them in the input
  PerRank<Ranks> receiveCounts;   ///< [r]: elements from rank r; its sendCounts[rank]; may be 0
  PerRank<Ranks> receiveOffsets;  ///< [r]: the first of them in the output
};

/// An all-to-all of elements T, of a different number for each pair of ranks. Each rank has counts and offsets of its
/// own, in elements; what it sends to another, which may be nothing, that one receives. args.count: at least the count
/// of every pair of ranks, also of pairs of others, and the same on all ranks.
///
/// run() is called by every thread of every block of `grid`, on every rank, also one that neither sends nor receives,
/// with the same args.count, numbers of blocks and threads, and config. Calls on the same scratch must not overlap in
/// time (use one stream). With args.count of zero it returns at once. A wait that fails leaves its record in
/// args.wait's control block; the output is then meaningless. Over packets, a rank that gets no elements from a peer
/// does not wait for it, until it is several calls ahead.
///
/// source(first, valid) is called once for each pack of each part of the input: element i of the part for rank r has
/// index args.sendOffsets[r] + i. sink(first, pack, valid) is called once for each pack of each part of the output:
/// element i of the part from rank r has index args.receiveOffsets[r] + i. The part from this rank to itself takes no
/// slots. `first` need not be a multiple of packSize<T>. Parts of the output do not overlap; what is between them is
/// not written.
///
/// Never in place: input and output do not overlap.
template <class T, CollectiveConfig config>
struct AllToAllV : VariableCounts<T, config.common()> {
  using Base = VariableCounts<T, config.common()>;
  using typename Base::Scratch;
  using Args = AllToAllVArgs<config.ranks, Scratch>;

  /// As in EqualCounts; and whether no part has more than args.count elements, and this rank sends itself as many as it
  /// receives from itself.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    const int rank = args.team.rank();
    return Base::areWithin(args.sendCounts, args) && Base::areWithin(args.receiveCounts, args) &&
           args.sendCounts[rank] == args.receiveCounts[rank] && Base::Base::accepts(args, shape);
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    using namespace stage;
    Base::template checkSourceAndSink<Source, Sink>();
    return Base::template withSession<AllToAllV>(grid, args, TraceId::AllToAll, [&](auto& session) {
      constexpr int parts = 0;
      const int rank = args.team.rank();
      const typename Base::Slices sent(args.sendCounts, args.sendOffsets, args.count);
      const typename Base::Slices received(args.receiveCounts, args.receiveOffsets, args.count);
      const typename Base::Message ownPart(args.sendCounts[rank], args.count);
      const OffsetSource<Source> ownInput(source, args.sendOffsets[rank]);
      const OffsetSink<Sink> ownOutput(sink, args.receiveOffsets[rank]);
      return session.run(eachPeer(sent) | from(source) | send<parts>(),
                         ownSlice(ownPart) | from(ownInput) | into(ownOutput),
                         eachPeer(received) | receive<parts>() | into(sink));
    });
  }
};
static_assert(Collective<AllToAllV<float, CollectiveConfig{}>>);

}  // namespace mscclpp
