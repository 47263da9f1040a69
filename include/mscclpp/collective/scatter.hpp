// Scatter: every rank gets args.count elements of the root, different ones each.
#pragma once

#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/equal_counts.hpp"
#include "mscclpp/collective/layout.hpp"
#include "mscclpp/collective/offset_access.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A scatter of elements T from args.root. args.count: the elements that each rank gets, any number.
///
/// run() is called by every thread of every block of `grid`, on every rank, with the same count, root, numbers of
/// blocks and threads, and config. Calls on the same scratch must not overlap in time (use one stream). With zero
/// elements it returns at once. A wait that fails leaves its record in args.wait's control block; the output is then
/// meaningless. The root does not wait for the others to receive, until it is several calls ahead of them.
///
/// source(first, valid) is called on the root only, once for each pack of each part; first is an index in the
/// concatenation of the parts: element i of the part for rank r has index r * args.count + i. sink(first, pack, valid)
/// is called once for each pack of this rank's part; first is an index in it, from 0. So `first` is a multiple of
/// packSize<T> for the sink only.
///
/// In place: the root's part may stay where it is, output == input + root * args.count. Otherwise the two do not
/// overlap on the root. Other ranks have no input.
template <class T, CollectiveConfig config>
struct Scatter : RootedCounts<T, config.common()> {
  using Base = RootedCounts<T, config.common()>;
  using typename Base::Args;

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    using namespace stage;
    Base::template checkSourceAndSink<Source, Sink>();
    return Base::template withSession<Scatter>(grid, args, TraceId::Scatter, [&](auto& session) {
      constexpr int parts = 0;
      const RankSlices<T, typename Base::Index> slices(args.count);
      const WholeMessage<T, typename Base::Index> part(args.count);
      const OffsetSource<Source> ownPart(source, static_cast<std::size_t>(args.root) * args.count);
      return session.run(eachPeer(slices, args.root) | from(source) | send<parts>(),
                         ownSlice(part, args.root) | from(ownPart) | into(sink),
                         withPeer(part, args.root) | receive<parts>() | into(sink));
    });
  }
};
static_assert(Collective<Scatter<float, CollectiveConfig{}>>);

}  // namespace mscclpp
