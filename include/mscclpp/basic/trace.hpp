// Trace policies, which record when the stages of device code begin and end. NoTrace, the default, costs nothing.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/clock.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/trace_capacity.hpp"
#include "mscclpp/basic/trace_event.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Records nothing and compiles to no instruction.
struct NoTrace {
  using IsDisabled = void;
  MSCCLPP_INLINE constexpr void begin(TraceId /*id*/, std::uint64_t /*argument*/ = noTraceArgument) const {}
  MSCCLPP_INLINE constexpr void end(TraceId /*id*/, std::uint64_t /*argument*/ = noTraceArgument) const {}
  MSCCLPP_INLINE constexpr void point(TraceId /*id*/, std::uint64_t /*argument*/ = noTraceArgument) const {}
};
static_assert(TracePolicy<NoTrace>);

/// Records into a TraceBuffer. Every thread of a block constructs one, once per launch and after the previous launch
/// has completed. Every thread may call every function, but only the block's two recorders (traceRecordersPerBlock)
/// record, each into its own track. An event costs a read of the multiprocessor's clock and a store of 16 bytes. Its
/// time is that of its issue, so a span may end before the stores in it have completed.
///
/// Spans nest. What happens when the buffer is full: basic/trace_capacity.hpp.
class BlockTrace {
 public:
  template <Grid GridType>
  MSCCLPP_INLINE BlockTrace(const TraceBuffer& buffer, const GridType& grid) {
    const int recorder = recorderOf(grid);
    if (buffer.events == nullptr || recorder < 0) return;
    const auto block = static_cast<std::uint32_t>(grid.blockIndex());
    const bool hasArray = block < buffer.blocks;
    const std::uint32_t array = hasArray ? block * traceRecordersPerBlock + static_cast<std::uint32_t>(recorder)
                                         : buffer.blocks * traceRecordersPerBlock;
    cursor_ = &buffer.cursors[array];
    if (!hasArray) return;
    first_ = buffer.events + std::size_t{array} * buffer.capacity;
    next_ = first_ + cursor_->count;
    const std::uint32_t free = buffer.capacity - cursor_->count;
    if (free < 2) return;
    free_.refill(free - 2);
    isOpen_ = true;
    stamp(TraceKind::Open);
  }
  MSCCLPP_INLINE ~BlockTrace() {
    if (cursor_ == nullptr) return;
    if (isOpen_) {
      stamp(TraceKind::Close);
      cursor_->count = static_cast<std::uint32_t>(next_ - first_);
    }
    if (free_.dropped() > 0) {
      arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(&cursor_->lost, free_.dropped());
    }
  }
  BlockTrace(const BlockTrace&) = delete;
  BlockTrace& operator=(const BlockTrace&) = delete;

  MSCCLPP_INLINE void begin(TraceId id, std::uint64_t argument = noTraceArgument) {
    if (cursor_ != nullptr && free_.begin()) put(TraceKind::Begin, id, argument);
  }
  MSCCLPP_INLINE void end(TraceId id, std::uint64_t argument = noTraceArgument) {
    if (cursor_ != nullptr && free_.end()) put(TraceKind::End, id, argument);
  }
  MSCCLPP_INLINE void point(TraceId id, std::uint64_t argument = noTraceArgument) {
    if (cursor_ != nullptr && free_.point()) put(TraceKind::Point, id, argument);
  }

 private:
  template <class GridType>
  static MSCCLPP_INLINE int recorderOf(const GridType& grid) {
    if (grid.block().rank() == 0) return 0;
    const bool isLastWarp = grid.warpIndex() == grid.warpCount() - 1 && grid.warpIndex() > 0;
    return isLastWarp && grid.warp().rank() == 0 ? 1 : -1;
  }

  MSCCLPP_INLINE void put(TraceKind kind, TraceId id, std::uint64_t argument) {
    arch::storeWide(next_++, {arch::cycles(), TraceEvent::wordOf(kind, id, argument)});
  }

  /// Records both clocks right after a tick of the coarser one, which ticks every 32 ns to 1 us on a GPU.
  MSCCLPP_INLINE void stamp(TraceKind kind) {
    constexpr int maxReads = 128;
    arch::ClockPair now = arch::clocks();
    const std::uint64_t before = now.nanoseconds;
    MSCCLPP_NO_UNROLL
    for (int read = 0; read < maxReads && now.nanoseconds == before; ++read) now = arch::clocks();
    arch::storeWide(next_++, {now.cycles, TraceEvent::wordOf(kind, TraceId::None, now.nanoseconds)});
  }

  TraceCursor* cursor_ = nullptr;  ///< null: this thread does not record
  TraceEvent* first_ = nullptr;
  TraceEvent* next_ = nullptr;
  TraceCapacity<std::uint32_t> free_{0};
  bool isOpen_ = false;
};
static_assert(TracePolicy<BlockTrace>);

/// RAII: a span that lasts as long as its scope.
template <TracePolicy Trace>
class TraceSpan {
 public:
  MSCCLPP_INLINE TraceSpan(Trace& trace, TraceId id, std::uint64_t argument = noTraceArgument)
      : trace_(trace), id_(id) {
    trace_.begin(id, argument);
  }
  MSCCLPP_INLINE ~TraceSpan() { trace_.end(id_); }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace& trace_;
  TraceId id_;
};

/// A grid with a trace: a collective that gets it records. The trace belongs to the calling thread and outlives the
/// grid.
template <Grid GridType, TracePolicy Trace>
class TracedGrid : public GridType {
 public:
  MSCCLPP_INLINE TracedGrid(const GridType& grid, Trace& trace) : GridType(grid), trace_(&trace) {}
  MSCCLPP_INLINE Trace& trace() const { return *trace_; }

 private:
  Trace* trace_;
};

/// The trace of a grid, or NoTrace. Bind the result by `auto&&`.
template <Grid GridType>
MSCCLPP_INLINE decltype(auto) traceOf(const GridType& grid) {
  if constexpr (requires { grid.trace(); }) {
    return grid.trace();
  } else {
    return NoTrace{};
  }
}

/// A wait policy that records the waits of another: a span from the first failed attempt to the end of the wait.
template <WaitPolicy Wait, TracePolicy Trace>
class TracedWait {
 public:
  MSCCLPP_INLINE TracedWait(const Wait& wait, Trace& trace) : wait_(wait), trace_(&trace) {}

  template <class Attempt>
  MSCCLPP_INLINE bool until(const WaitSite& site, Attempt&& attempt) {
    bool waiting = false;
    const bool succeeded = wait_.until(site, tracedAttempt(site, attempt, waiting));
    if (waiting) trace_->end(TraceId::Wait);
    return succeeded;
  }
  template <class Warp, class Attempt>
  MSCCLPP_INLINE bool untilCollective(const Warp& warp, const WaitSite& site, Attempt&& attempt) {
    bool waiting = false;
    const bool succeeded = wait_.untilCollective(warp, site, tracedAttempt(site, attempt, waiting));
    if (waiting) trace_->end(TraceId::Wait);
    warp.sync();  // reconverges the lanes, which may store together next, after the recording lane has recorded
    return succeeded;
  }
  MSCCLPP_INLINE bool failed() const { return wait_.failed(); }

 private:
  template <class Attempt>
  MSCCLPP_INLINE auto tracedAttempt(const WaitSite& site, Attempt& attempt, bool& waiting) {
    return [this, &site, &attempt, &waiting](std::uint64_t& seen) {
      if (attempt(seen)) return true;
      if (!waiting) {
        waiting = true;
        trace_->begin(TraceId::Wait, site.peer < 0 ? noTraceArgument : static_cast<std::uint64_t>(site.peer));
      }
      return false;
    };
  }

  Wait wait_;
  Trace* trace_;
};
static_assert(WaitPolicy<TracedWait<BoundedWait, BlockTrace>>);

/// `wait`, with its waits recorded by `trace`.
template <WaitPolicy Wait, TracePolicy Trace>
MSCCLPP_INLINE auto tracedWait(const Wait& wait, Trace& trace) {
  if constexpr (requires { typename Trace::IsDisabled; }) {
    return wait;
  } else {
    return TracedWait<Wait, Trace>(wait, trace);
  }
}

}  // namespace mscclpp
