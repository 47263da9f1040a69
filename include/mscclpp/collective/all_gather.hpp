// All-gather: every rank contributes args.count elements and gets the contributions of all ranks, in rank order.
#pragma once

#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/equal_counts.hpp"
#include "mscclpp/collective/layout.hpp"
#include "mscclpp/collective/offset_access.hpp"
#include "mscclpp/collective/output_args.hpp"
#include "mscclpp/collective/slot_reuse.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// An all-gather of elements T. args.count: the elements of a rank's contribution, any number.
///
/// run() is called by every thread of every block of `grid`, on every rank, with the same count, numbers of blocks and
/// threads, and config. Calls on the same scratch must not overlap in time (use one stream). With zero elements it
/// returns at once. A wait that fails leaves its record in args.wait's control block; the output is then meaningless.
///
/// source(first, valid) is called once for each pack of this rank's contribution; first is an index in it, from 0.
/// sink(first, pack, valid) is called once for each pack of each contribution; first is an index in the concatenation
/// of all: element i of rank r has index r * args.count + i. So `first` is a multiple of packSize<T> for the source
/// only.
///
/// In place: this rank's contribution may be at its position in the output, input == output + rank * args.count.
/// Otherwise input and output do not overlap.
template <class T, CollectiveConfig config>
struct AllGather : EqualCounts<T, config.common(), reuseOf(config.link)> {
  using Base = EqualCounts<T, config.common(), reuseOf(config.link)>;
  /// Those of Base, and `outputs` with Link::Outputs.
  using Args = ArgsWithOutputs<typename Base::Args, config.link, config.ranks>;

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    using namespace stage;
    Base::template checkSourceAndSink<Source, Sink>();
    return Base::template withSession<AllGather>(grid, args, TraceId::AllGather, [&](auto& session) {
      const WholeMessage<T, typename Base::Index> contribution(args.count);
      const RankSlices<T, typename Base::Index> slices(args.count);
      const std::size_t ownFirst = static_cast<std::size_t>(args.team.rank()) * args.count;
      const OffsetSink<Sink> ownPart(sink, ownFirst);
      if constexpr (config.link == Link::Outputs) {
        return session.run(
            ownSlice(contribution) | from(source) | storeToPeers<T>(args.outputs, ownFirst) | into(ownPart),
            eachPeer(slices) | awaitStores());
      } else {
        constexpr int inputs = 0;
        return session.run(ownSlice(contribution) | from(source) | share<inputs>() | into(ownPart),
                           eachPeer(slices) | receive<inputs>() | into(sink));
      }
    });
  }
};
static_assert(Collective<AllGather<float, CollectiveConfig{}>>);

}  // namespace mscclpp
