// Cases of basic/trace.hpp: which threads record, what they record, limits of the buffer, and that nothing else
// changes.
#pragma once

#include <doctest/doctest.h>

#include <type_traits>
#include <vector>

#include "mscclpp/basic/trace.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/trace_memory.hpp"

namespace mscclpp::test {

static_assert(std::is_empty_v<NoTrace> && std::is_trivially_copyable_v<TraceBuffer>);
struct WithNoTrace {
  int value;
  [[no_unique_address]] NoTrace trace;
};
static_assert(sizeof(WithNoTrace) == sizeof(int));

inline constexpr TraceId outer = userTraceId(0), inner = userTraceId(1), mark = userTraceId(2);

struct TraceBody {
  TraceBuffer buffer;
  int innerSpans;
  bool unbalancedEnd;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    BlockTrace trace(buffer, grid);
    const TracedGrid traced(grid, trace);
    auto&& mine = traceOf(traced);
    if (unbalancedEnd) mine.end(outer);
    const TraceSpan whole(mine, outer, static_cast<std::uint64_t>(grid.blockIndex()));
    for (int i = 0; i < innerSpans; ++i) {
      const TraceSpan part(mine, inner, static_cast<std::uint64_t>(i));
    }
    mine.point(mark, std::uint64_t{1} << 47 | static_cast<std::uint64_t>(grid.warpIndex()));
    // Without a trace there is no effect.
    auto&& none = traceOf(grid);
    const TraceSpan nothing(none, outer);
  }
};

TEST_CASE("trace: two threads of each block record, spans nest, and nothing else is written") {
  Backend<> backend;
  TraceMemory memory(backend, 2, 16);
  backend.launch({1, 2, 3}, TraceBody{memory.buffer(), 2, false});
  const auto read = memory.read();
  CHECK(read.unusedIsPoison);
  REQUIRE(read.tracks.size() == 4);
  for (std::size_t track = 0; track < 4; ++track) {
    CAPTURE(track);
    const auto& events = read.tracks[track];
    using enum TraceKind;
    REQUIRE(kindsOf(events) == std::vector{Open, Begin, Begin, End, Begin, End, Point, End, Close});
    CHECK(read.cursors[track].lost == 0);
    CHECK(events[1].id() == outer);
    CHECK(events[1].argument() == track / 2);
    CHECK(events[2].id() == inner);
    CHECK(events[2].argument() == 0);
    CHECK(events[3].id() == inner);
    CHECK(events[3].argument() == noTraceArgument);
    CHECK(events[4].argument() == 1);
    CHECK(events[6].id() == mark);
    CHECK(events[6].argument() == (std::uint64_t{1} << 47 | (track % 2 == 0 ? 0u : 2u)));
    CHECK(events[7].id() == outer);
    for (std::size_t i = 1; i < events.size(); ++i) CHECK(events[i].time >= events[i - 1].time);
    CHECK(events.back().argument() >= events.front().argument());
    CHECK(events.back().time > events.front().time);
  }
}

TEST_CASE("trace: a block of one warp has one track") {
  Backend<> backend;
  TraceMemory memory(backend, 1, 16);
  backend.launch({1, 1, 1}, TraceBody{memory.buffer(), 0, false});
  const auto read = memory.read();
  CHECK(read.tracks[0].size() == 5);
  CHECK(read.tracks[1].empty());
}

TEST_CASE("trace: a full buffer drops whole spans and counts their events") {
  // Open, outer, three inners, the mark, end of outer, Close: 11 events.
  for (std::uint32_t capacity = 1; capacity <= 12; ++capacity) {
    CAPTURE(capacity);
    Backend<> backend;
    TraceMemory memory(backend, 1, capacity);
    backend.launch({1, 1, 1}, TraceBody{memory.buffer(), 3, false});
    const auto read = memory.read();
    CHECK(read.unusedIsPoison);
    const auto kinds = kindsOf(read.tracks[0]);
    const bool fitsLaunch = capacity >= 2;
    CHECK((kinds.size() >= 2) == fitsLaunch);
    // Nine events, and the stamps Open and Close, which are not counted.
    const std::size_t recorded = kinds.size() - (fitsLaunch ? 2 : 0);
    CHECK(recorded + read.cursors[0].lost == 9);
    CHECK(kinds.size() <= capacity);
    if (capacity >= 11) CHECK(read.cursors[0].lost == 0);
    int depth = 0;
    for (const TraceKind kind : kinds) {
      depth += kind == TraceKind::Begin ? 1 : kind == TraceKind::End ? -1 : 0;
      CHECK(depth >= 0);
    }
    CHECK(depth == 0);
  }
}

TEST_CASE("trace: launches append until the buffer is full") {
  Backend<> backend;
  TraceMemory memory(backend, 1, 12);
  for (int launch = 0; launch < 3; ++launch) backend.launch({1, 1, 1}, TraceBody{memory.buffer(), 0, false});
  const auto read = memory.read();
  using enum TraceKind;
  // The third launch has space for its stamps only.
  CHECK(kindsOf(read.tracks[0]) ==
        std::vector{Open, Begin, Point, End, Close, Open, Begin, Point, End, Close, Open, Close});
  CHECK(read.cursors[0].lost == 3);
  CHECK(read.unusedIsPoison);
}

TEST_CASE("trace: events of blocks without an array are counted, and ends without a begin") {
  Backend<> backend;
  TraceMemory memory(backend, 1, 16);
  backend.launch({1, 3, 1}, TraceBody{memory.buffer(), 1, true});
  const auto read = memory.read();
  CHECK(read.tracks[0].size() == 7);
  CHECK(read.cursors[0].lost == 1);
  CHECK(read.cursors[2].count == 0);
  CHECK(read.cursors[2].lost == 2 * 6);
  CHECK(read.unusedIsPoison);
}

TEST_CASE("trace: a null buffer records nothing") {
  Backend<> backend;
  backend.launch({1, 2, 2}, TraceBody{TraceBuffer{}, 2, false});
}

/// Two waits: one succeeds at the first attempt, the other at the third.
struct TracedWaitBody {
  TraceBuffer buffer;
  BoundedWait policy;
  Window<> result;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    BlockTrace trace(buffer, grid);
    auto wait = tracedWait(policy, trace);
    int attempts = 0;
    const auto third = [&](std::uint64_t&) { return ++attempts >= 3; };
    const bool first = wait.until(WaitSite{WaitOperation::Packet, rank, 3, 0, 1}, [](std::uint64_t&) { return true; });
    const bool second = wait.until(WaitSite{WaitOperation::Packet, rank, 5, 0, 1}, third);
    if (grid.block().rank() == 0)
      *reinterpret_cast<int*>(result.at(0)) = first && second && attempts == 3 && !wait.failed() ? 1 : 0;
  }
};

TEST_CASE("trace: a wait is recorded if its first attempt fails") {
  Backend<> backend;
  TraceMemory memory(backend, 1, 16);
  auto result = backend.allocate(1, sizeof(int), 0);
  backend.launch({1, 1, 1}, TracedWaitBody{memory.buffer(), backend.wait(), result.window()});
  CHECK(result.template read<int>(0)[0] == 1);
  const auto events = memory.read().tracks[0];
  using enum TraceKind;
  REQUIRE(kindsOf(events) == std::vector{Open, Begin, End, Close});
  CHECK(events[1].id() == TraceId::Wait);
  CHECK(events[1].argument() == 5);
}

}  // namespace mscclpp::test
