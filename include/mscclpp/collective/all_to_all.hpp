// All-to-all: every rank sends args.count elements to each rank, different ones to each.
#pragma once

#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/equal_counts.hpp"
#include "mscclpp/collective/layout.hpp"
#include "mscclpp/collective/output_args.hpp"
#include "mscclpp/collective/slot_reuse.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// An all-to-all of elements T. args.count: the elements from each rank to each rank, any number.
///
/// run() is called by every thread of every block of `grid`, on every rank, with the same count, numbers of blocks and
/// threads, and config. Calls on the same scratch must not overlap in time (use one stream). With zero elements it
/// returns at once. A wait that fails leaves its record in args.wait's control block; the output is then meaningless.
///
/// source(first, valid) is called once for each pack of each part of the input; element i of the part for rank r has
/// index r * args.count + i. sink(first, pack, valid) is called once for each pack of each part of the output; element
/// i of the part from rank r has index r * args.count + i. The part from this rank to itself takes no slots. `first`
/// need not be a multiple of packSize<T>.
///
/// Never in place: input and output do not overlap.
template <class T, CollectiveConfig config>
struct AllToAll : EqualCounts<T, config.common(), reuseOf(config.link)> {
  using Base = EqualCounts<T, config.common(), reuseOf(config.link)>;
  /// Those of Base, and `outputs` with Link::Outputs.
  using Args = ArgsWithOutputs<typename Base::Args, config.link, config.ranks>;

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    using namespace stage;
    Base::template checkSourceAndSink<Source, Sink>();
    return Base::template withSession<AllToAll>(grid, args, TraceId::AllToAll, [&](auto& session) {
      const RankSlices<T, typename Base::Index> slices(args.count);
      if constexpr (config.link == Link::Outputs) {
        return session.run(ownSlice(slices) | from(source) | into(sink),
                           eachPeer(slices) | from(source) | storeToPeers<T>(args.outputs),
                           eachPeer(slices) | awaitStores());
      } else {
        constexpr int parts = 0;
        return session.run(eachPeer(slices) | from(source) | send<parts>(),
                           ownSlice(slices) | from(source) | into(sink),
                           eachPeer(slices) | receive<parts>() | into(sink));
      }
    });
  }
};
static_assert(Collective<AllToAll<float, CollectiveConfig{}>>);

}  // namespace mscclpp
