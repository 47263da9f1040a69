// The session of a collective: a packet session, a tile pipeline or a bulk session, as its configuration says, with the
// scratch that it needs and the checks of its arguments.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/bulk_counters.hpp"
#include "mscclpp/collective/bulk_session.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/layout.hpp"
#include "mscclpp/collective/packet_session.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/collective/tile_pipeline.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

namespace detail {

/// The scratch of a protocol, and the type of a layout's numbers of packs.
template <Protocol protocol, int arrays, SlotReuse reuse, Receivers receivers>
struct ScratchOf {
  using Type = PacketSlots<typename PackProtocolOf<protocol>::Type, arrays, reuse, receivers>;
  using Index = rows::PackCount;
};
template <int arrays, SlotReuse reuse, Receivers receivers>
struct ScratchOf<Protocol::Simple, arrays, reuse, receivers> {
  using Type = TileRings<arrays, reuse>;
  using Index = std::size_t;
};
template <int arrays, SlotReuse reuse, Receivers receivers>
struct ScratchOf<Protocol::Bulk, arrays, reuse, receivers> {
  static_assert(reuse == BulkCounters::reuse,
                "Protocol::Bulk is for AllGather, AllToAll and Broadcast with Link::Outputs");
  using Type = BulkCounters;
  using Index = std::size_t;
};

}  // namespace detail

/// The base of a collective of elements T whose stages use `arrays` arrays. stages: one more than those that receive.
/// reuse: the rule for slots (collective/slot_reuse.hpp). receivers: the ranks that any call sends to.
template <class T, CollectiveConfig config, int arrays, int stages, SlotReuse reuse,
          Receivers receivers = Receivers::All>
struct OverSession {
  using Element = T;
  /// The layout of the window: PacketSlots, TileRings for Protocol::Simple, BulkCounters for Protocol::Bulk.
  using Scratch = typename detail::ScratchOf<config.protocol, arrays, reuse, receivers>::Type;
  using Args = CollectiveArgs<config.ranks, Scratch>;
  /// The type of a layout's numbers of packs.
  using Index = typename detail::ScratchOf<config.protocol, arrays, reuse, receivers>::Index;
  /// The largest number of threads per block: 16 warps, and a control warp if the session has one.
  static constexpr int maxBlockThreads = isPipelined(config.protocol) ? 544 : 512;

  /// Protocol::Bulk: the shared memory of a block, in bytes.
  static MSCCLPP_HOST_DEVICE std::size_t sharedBytes(const Args&,
                                                     LaunchShape) requires(config.protocol == Protocol::Bulk) {
    return bulkSessionBytes<bulkSessionShape(config.ranks)>;
  }

 protected:
  static_assert(config.protocol != Protocol::Bulk || config.link == Link::Outputs,
                "Protocol::Bulk requires Link::Outputs: bulk copies go to outputs that the peers have registered");

  /// The scratch for arrays of up to `packs` packs; of a pipeline, for any number of packs, with this shape. A bulk
  /// session cuts messages into parts of shape.tilePacks packs, for up to shape.blocks blocks.
  static MSCCLPP_HOST_DEVICE Scratch makeScratch([[maybe_unused]] std::size_t packs, int ranks,
                                                 [[maybe_unused]] const PipelineShape& shape) {
    if constexpr (isPipelined(config.protocol)) {
      constexpr int least = Scratch::leastSlots(config.lookahead, stages);
      return {shape.tilePacks, ranks, shape.blocks, shape.slots > least ? shape.slots : least};
    } else if constexpr (config.protocol == Protocol::Bulk) {
      return {shape.tilePacks * sizeof(Word128), ranks, shape.blocks};
    } else {
      return {packs, ranks};
    }
  }
  /// Whether a launch of this shape can run: arrays of `packs` packs fit in the scratch, a pipeline has the number of
  /// blocks that its scratch was made for, and a bulk session no more than that.
  static MSCCLPP_HOST_DEVICE bool fits(const Args& args, [[maybe_unused]] std::size_t packs,
                                       [[maybe_unused]] LaunchShape shape) {
    if (shape.blocks < 1 || shape.blocks > maxBlocks) return false;
    if constexpr (isPipelined(config.protocol)) {
      return shape.blocks == args.scratch.blocks && args.scratch.tilePacks > 0 && args.scratch.tilePacks % 8 == 0 &&
             args.scratch.suffices(config.lookahead, stages);
    } else if constexpr (config.protocol == Protocol::Bulk) {
      return shape.blocks <= args.scratch.blocks && args.scratch.partBytes > 0 && args.scratch.partBytes % 128 == 0;
    } else {
      return packs <= args.scratch.arrayPacks;
    }
  }

  /// Calls body(session), whose result it returns: whether all waits of the calling thread succeeded. With zero
  /// elements it returns true at once. id: of the span that records the call. C: the collective. Where calls are
  /// checked, wrong arguments of C return false, or throw InvalidCall on a CPU; so do calls that differ between the
  /// ranks, if slots are reused by the data: then every rank waits for all others anyway.
  template <class C, class GridType, class CallArgs, class Body>
  static MSCCLPP_INLINE bool withSession(const GridType& grid, const CallArgs& args, TraceId id, const Body& body) {
    static_assert(Grid<GridType>,
                  "grid must be a Grid: gpu::Grid() in a kernel, cpu::SerialGrid() on a CPU thread; see Grid in "
                  "basic/concepts.hpp");
    if (args.count == 0) return true;
    if constexpr (checked) {
      if (!checkArguments<C>(grid, args)) return false;
      if constexpr (reuse == SlotReuse::ByData) {
        if (!compareCalls<C>(grid, args)) return false;
      }
    }
    auto&& trace = traceOf(grid);
    const TraceSpan span(trace, id, args.count * sizeof(T));
    auto wait = tracedWait(args.wait, trace);
    return makeSession(grid, args, wait, trace, body);
  }
  /// Calls body(session), with waits by `wait`.
  template <class GridType, class Wait, class Trace, class Body>
  static MSCCLPP_INLINE bool makeSession(const GridType& grid, const Args& args, Wait& wait, Trace& trace,
                                         const Body& body) {
    if constexpr (isPipelined(config.protocol)) {
      auto session = makeTilePipeline<config.lookahead>(grid, args, wait, trace);
      return body(session);
    } else if constexpr (config.protocol == Protocol::Bulk) {
      auto session = makeBulkSession<bulkSessionShape(config.ranks)>(grid, args, wait, trace);
      return body(session);
    } else {
      PacketSession session(grid, args, wait, trace);
      return body(session);
    }
  }

  /// Answers what is no source or sink with what is.
  template <class Source, class Sink>
  static MSCCLPP_HOST_DEVICE constexpr void checkSourceAndSink() {
    static_assert(
        SourceOf<Source, T>,
        "source must be a const callable Pack<T>(std::size_t first, int valid), such as ArraySource<T>(data); "
        "see SourceOf in basic/source_sink.hpp");
    static_assert(SinkOf<Sink, T>,
                  "sink must be a const callable void(std::size_t first, const Pack<T>& result, int valid), such as "
                  "ArraySink<T>(data); see SinkOf in basic/source_sink.hpp");
  }
};

}  // namespace mscclpp
