// Broadcast: every rank gets the args.count elements of the root.
#pragma once

#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/equal_counts.hpp"
#include "mscclpp/collective/layout.hpp"
#include "mscclpp/collective/output_args.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A broadcast of elements T from args.root. args.count: the elements of the message, any number.
///
/// run() is called by every thread of every block of `grid`, on every rank, with the same count, root, numbers of
/// blocks and threads, and config. Calls on the same scratch must not overlap in time (use one stream). With zero
/// elements it returns at once. A wait that fails leaves its record in args.wait's control block; the output is then
/// meaningless. The root does not wait for the others to receive, until it is several calls ahead of them.
///
/// source(first, valid) is called once for each pack, on the root only; sink(first, pack, valid) once for each pack, on
/// every rank. first is an index in the message.
///
/// In place: input == output. Otherwise the two do not overlap on the root. Other ranks have no input.
template <class T, CollectiveConfig config>
struct Broadcast : RootedCounts<T, config.common()> {
  using Base = RootedCounts<T, config.common()>;
  /// Those of Base, and `outputs` with Link::Outputs.
  using Args = ArgsWithOutputs<typename Base::Args, config.link, config.ranks>;

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    using namespace stage;
    Base::template checkSourceAndSink<Source, Sink>();
    return Base::template withSession<Broadcast>(grid, args, TraceId::Broadcast, [&](auto& session) {
      const WholeMessage<T, typename Base::Index> message(args.count);
      if constexpr (config.link == Link::Outputs) {
        return session.run(ownSlice(message, args.root) | from(source) | storeToPeers<T>(args.outputs) | into(sink),
                           withPeer(message, args.root) | awaitStores());
      } else {
        constexpr int inputs = 0;
        return session.run(ownSlice(message, args.root) | from(source) | share<inputs>() | into(sink),
                           withPeer(message, args.root) | receive<inputs>() | into(sink));
      }
    });
  }
};
static_assert(Collective<Broadcast<float, CollectiveConfig{}>>);

}  // namespace mscclpp
