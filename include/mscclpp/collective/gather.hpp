// Gather: every rank contributes args.count elements, and the root gets the contributions of all ranks, in rank order.
#pragma once

#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/equal_counts.hpp"
#include "mscclpp/collective/layout.hpp"
#include "mscclpp/collective/offset_access.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A gather of elements T to args.root. args.count: the elements of a rank's contribution, any number.
///
/// run() is called by every thread of every block of `grid`, on every rank, with the same count, root, numbers of
/// blocks and threads, and config. Calls on the same scratch must not overlap in time (use one stream). With zero
/// elements it returns at once. A wait that fails leaves its record in args.wait's control block; the output is then
/// meaningless. Other ranks do not wait for the root to receive, until they are several calls ahead of it.
///
/// source(first, valid) is called once for each pack of this rank's contribution; first is an index in it, from 0.
/// sink(first, pack, valid) is called on the root only, once for each pack of each contribution; first is an index in
/// the concatenation of all: element i of rank r has index r * args.count + i. So `first` is a multiple of packSize<T>
/// for the source only.
///
/// In place: the root's contribution may be at its position in the output, input == output + root * args.count.
/// Otherwise the two do not overlap on the root. Other ranks have no output.
template <class T, CollectiveConfig config>
struct Gather : RootedCounts<T, config.common()> {
  using Base = RootedCounts<T, config.common()>;
  using typename Base::Args;

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    using namespace stage;
    Base::template checkSourceAndSink<Source, Sink>();
    return Base::template withSession<Gather>(grid, args, TraceId::Gather, [&](auto& session) {
      constexpr int inputs = 0;
      const WholeMessage<T, typename Base::Index> contribution(args.count);
      const RankSlices<T, typename Base::Index> slices(args.count);
      const OffsetSink<Sink> ownPart(sink, static_cast<std::size_t>(args.root) * args.count);
      return session.run(withPeer(contribution, args.root) | from(source) | send<inputs>(),
                         ownSlice(contribution, args.root) | from(source) | into(ownPart),
                         eachPeer(slices, args.root) | receive<inputs>() | into(sink));
    });
  }
};
static_assert(Collective<Gather<float, CollectiveConfig{}>>);

}  // namespace mscclpp
