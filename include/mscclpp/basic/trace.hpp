// Trace policies: what records when the stages of device code begin and end. NoTrace, the default, is empty and costs nothing.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/clock.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/trace_event.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Records nothing, in no instruction.
struct NoTrace {
  using RecordsNothing = void;
  MSCCLPP_INLINE constexpr void begin(TraceId /*id*/, std::uint64_t /*argument*/ = noTraceArgument) const {}
  MSCCLPP_INLINE constexpr void end(TraceId /*id*/, std::uint64_t /*argument*/ = noTraceArgument) const {}
  MSCCLPP_INLINE constexpr void point(TraceId /*id*/, std::uint64_t /*argument*/ = noTraceArgument) const {}
};
static_assert(TracePolicy<NoTrace>);

/// Records into a TraceBuffer. Every thread of a block makes one, once in a launch and after the launch before has ended; every thread may call every function,
/// and those of the two recorders of the block (traceRecordersPerBlock) have an effect, each on a track of its own. An event is one store of 16 bytes and a
/// read of the clock of the multiprocessor: its time is when it was issued, so a span that stores ends before its stores have landed.
///
/// Spans nest. A begin takes the room of its end too, so what does not fit is whole spans; it is counted, and nothing is overwritten.
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
    room_ = buffer.capacity - cursor_->count;
    if (room_ < 2) {
      room_ = 0;
      return;
    }
    room_ -= 2;
    isOpen_ = true;
    stamp(TraceKind::Open);
  }
  MSCCLPP_INLINE ~BlockTrace() {
    if (cursor_ == nullptr) return;
    if (isOpen_) {
      stamp(TraceKind::Close);
      cursor_->count = static_cast<std::uint32_t>(next_ - first_);
    }
    if (lost_ > 0) arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(&cursor_->lost, lost_);
  }
  BlockTrace(const BlockTrace&) = delete;
  BlockTrace& operator=(const BlockTrace&) = delete;

  MSCCLPP_INLINE void begin(TraceId id, std::uint64_t argument = noTraceArgument) {
    if (cursor_ == nullptr) return;
    if (room_ < 2) {
      ++skipped_;
      ++lost_;
      return;
    }
    room_ -= 2;
    ++depth_;
    put(TraceKind::Begin, id, argument);
  }
  MSCCLPP_INLINE void end(TraceId id, std::uint64_t argument = noTraceArgument) {
    if (cursor_ == nullptr) return;
    // Room never grows, so the spans that were skipped are the inner ones.
    if (skipped_ > 0 || depth_ == 0) {
      if (skipped_ > 0) --skipped_;
      ++lost_;
      return;
    }
    --depth_;
    put(TraceKind::End, id, argument);
  }
  MSCCLPP_INLINE void point(TraceId id, std::uint64_t argument = noTraceArgument) {
    if (cursor_ == nullptr) return;
    if (room_ < 1) {
      ++lost_;
      return;
    }
    --room_;
    put(TraceKind::Point, id, argument);
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

  /// Both clocks, right after the slower one has ticked, which it does every 32 ns to 1 us on a GPU.
  MSCCLPP_INLINE void stamp(TraceKind kind) {
    constexpr int mostLooks = 128;
    arch::ClockPair now = arch::clocks();
    const std::uint64_t before = now.nanoseconds;
    MSCCLPP_NO_UNROLL
    for (int look = 0; look < mostLooks && now.nanoseconds == before; ++look) now = arch::clocks();
    arch::storeWide(next_++, {now.cycles, TraceEvent::wordOf(kind, TraceId::None, now.nanoseconds)});
  }

  TraceCursor* cursor_ = nullptr;  ///< null: this thread does not record
  TraceEvent* first_ = nullptr;
  TraceEvent* next_ = nullptr;
  std::uint32_t room_ = 0;     ///< events that nobody has spoken for
  std::uint32_t depth_ = 0;    ///< recorded spans that have not ended
  std::uint32_t skipped_ = 0;  ///< spans that have not ended and are not recorded
  std::uint32_t lost_ = 0;
  bool isOpen_ = false;
};
static_assert(TracePolicy<BlockTrace>);

/// A span as long as its scope.
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

/// A grid whose blocks record: what it is handed to does, for instance a collective. The trace is this thread's and outlives the grid.
template <Grid GridType, TracePolicy Trace>
class TracedGrid : public GridType {
 public:
  MSCCLPP_INLINE TracedGrid(const GridType& grid, Trace& trace) : GridType(grid), trace_(&trace) {}
  MSCCLPP_INLINE Trace& trace() const { return *trace_; }

 private:
  Trace* trace_;
};

/// The trace of a grid; NoTrace for one that has none. Bind it by `auto&&`.
template <Grid GridType>
MSCCLPP_INLINE decltype(auto) traceOf(const GridType& grid) {
  if constexpr (requires { grid.trace(); }) {
    return grid.trace();
  } else {
    return NoTrace{};
  }
}

/// A wait policy that records the waits of another: from the first attempt that fails to the last one.
template <WaitPolicy Wait, TracePolicy Trace>
class TracedWait {
 public:
  MSCCLPP_INLINE TracedWait(const Wait& wait, Trace& trace) : wait_(wait), trace_(&trace) {}

  template <class Attempt>
  MSCCLPP_INLINE bool until(const WaitSite& site, Attempt&& attempt) {
    bool waits = false;
    const bool over = wait_.until(site, noting(site, attempt, waits));
    if (waits) trace_->end(TraceId::Wait);
    return over;
  }
  template <class Warp, class Attempt>
  MSCCLPP_INLINE bool untilTogether(const Warp& warp, const WaitSite& site, Attempt&& attempt) {
    bool waits = false;
    const bool over = wait_.untilTogether(warp, site, noting(site, attempt, waits));
    if (waits) trace_->end(TraceId::Wait);
    warp.sync();  // lanes that wait together may go on to store together, which one that records must not be late for
    return over;
  }
  MSCCLPP_INLINE bool failed() const { return wait_.failed(); }

 private:
  template <class Attempt>
  MSCCLPP_INLINE auto noting(const WaitSite& site, Attempt& attempt, bool& waits) {
    return [this, &site, &attempt, &waits](std::uint64_t& seen) {
      if (attempt(seen)) return true;
      if (!waits) {
        waits = true;
        trace_->begin(TraceId::Wait, site.peer < 0 ? noTraceArgument : static_cast<std::uint64_t>(site.peer));
      }
      return false;
    };
  }

  Wait wait_;
  Trace* trace_;
};
static_assert(WaitPolicy<TracedWait<BoundedWait, BlockTrace>>);

/// `wait`, recorded by `trace`.
template <WaitPolicy Wait, TracePolicy Trace>
MSCCLPP_INLINE auto tracedWait(const Wait& wait, Trace& trace) {
  if constexpr (requires { typename Trace::RecordsNothing; }) {
    return wait;
  } else {
    return TracedWait<Wait, Trace>(wait, trace);
  }
}

}  // namespace mscclpp
