// Cases of collective/traced.hpp: the events of an all-reduce, and that its results are unchanged.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>

#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/collective/traced.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/trace_memory.hpp"

namespace mscclpp::test {

inline constexpr int tracedRanks = 2;

template <class Collective>
struct TracedBody {
  typename Collective::Args args;  ///< without the members that differ between ranks
  Window<> epochs, data;
  TraceBuffer trace[tracedRanks];
  std::size_t count;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    typename Traced<Collective>::Args mine{args, trace[rank]};
    mine.collective.team = decltype(mine.collective.team)(rank, tracedRanks);
    mine.collective.epochs = {reinterpret_cast<std::uint64_t*>(epochs.at(rank))};
    auto* floats = reinterpret_cast<float*>(data.at(rank));
    Traced<Collective>::run(grid, mine, ArraySource<float>(floats), ArraySink<float>(floats + count));
  }
};

/// A recorded span: id, argument, and nesting depth.
struct RecordedSpan {
  TraceId id;
  std::uint64_t argument;
  int depth;
  friend bool operator==(const RecordedSpan&, const RecordedSpan&) = default;
};

/// The spans in the order of their starts, without waits, which depend on timing.
inline std::vector<RecordedSpan> spansOf(const std::vector<TraceEvent>& events) {
  std::vector<RecordedSpan> spans;
  int depth = 0;
  for (const TraceEvent& event : events) {
    if (event.kind() == TraceKind::End) --depth;
    if (event.kind() != TraceKind::Begin) continue;
    if (event.id() != TraceId::Wait) spans.push_back({event.id(), event.argument(), depth});
    ++depth;
  }
  CHECK(depth == 0);
  return spans;
}

/// Runs an all-reduce of `count` floats, checks the sums, and returns the tracks of all ranks.
template <class Collective, class BackendType>
std::vector<std::vector<std::vector<TraceEvent>>> tracksOf(BackendType& backend, const Shape& shape, std::size_t count,
                                                           typename Collective::Args args) {
  using Scratch = typename Collective::Scratch;
  const auto scratch = backend.allocate(tracedRanks, args.scratch.windowBytes(), Scratch::initialByte);
  auto epochs = backend.allocate(tracedRanks, epochWords * sizeof(std::uint64_t), 0);
  auto data = backend.allocate(tracedRanks, 2 * count * sizeof(float), 0);
  std::deque<TraceMemory<BackendType>> traces;
  for (int rank = 0; rank < tracedRanks; ++rank) args.window.base[rank] = scratch.window().at(rank);
  args.count = count;
  args.wait = backend.wait();
  TracedBody<Collective> body{args, epochs.window(), data.window(), {}, count};
  for (int rank = 0; rank < tracedRanks; ++rank) {
    epochs.write(rank, std::vector<std::uint64_t>(epochWords, Scratch::firstEpoch));
    std::vector<float> input(count);
    for (std::size_t i = 0; i < count; ++i) input[i] = static_cast<float>(i % 100 + static_cast<std::size_t>(rank));
    data.write(rank, input);
    body.trace[rank] = traces.emplace_back(backend, static_cast<std::uint32_t>(shape.blocks), 1024).buffer();
  }
  backend.launch(shape, body);
  std::vector<std::vector<std::vector<TraceEvent>>> tracks;
  for (int rank = 0; rank < tracedRanks; ++rank) {
    const auto floats = data.template read<float>(rank);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) wrong += floats[count + i] != static_cast<float>(2 * (i % 100) + 1);
    CHECK(wrong == 0);
    const auto read = traces[static_cast<std::size_t>(rank)].read();
    CHECK(read.unusedIsPoison);
    for (const TraceCursor& cursor : read.cursors) CHECK(cursor.lost == 0);
    tracks.push_back(read.tracks);
  }
  return tracks;
}

TEST_CASE("traced: in a pipeline the first thread records the work, and the control warp the publishing") {
  using Pipelined = AllReduce<float, Sum, AllReduceConfig{.protocol = Protocol::Simple, .pattern = Pattern::TwoShot}>;
  constexpr int blocks = 2;
  constexpr std::size_t tilePacks = 8, tiles = 5, lookahead = 2;
  // Two slices of five tiles of each of two blocks.
  constexpr std::size_t count = tracedRanks * tiles * blocks * tilePacks * 4;
  Backend<> backend;
  for (const int warps : {1, 3}) {
    CAPTURE(warps);
    Pipelined::Args args{};
    args.scratch = Pipelined::scratchFor(
        count, tracedRanks, {.tilePacks = tilePacks, .blocks = blocks, .slots = 2 * static_cast<int>(lookahead)});
    const auto tracks = tracksOf<Pipelined>(backend, {tracedRanks, blocks, warps}, count, args);
    std::vector<RecordedSpan> whole{{TraceId::AllReduce, count * sizeof(float), 0}};
    std::vector<RecordedSpan> work = whole, control = whole;
    for (std::uint64_t step = 0; step < tiles + 2 * lookahead; ++step) {
      if (step < tiles) work.push_back({TraceId::Push, step, 1});
      if (step >= lookahead && step - lookahead < tiles) work.push_back({TraceId::Reduce, step, 1});
      if (step >= 2 * lookahead) work.push_back({TraceId::Collect, step, 1});
      const bool publishes = step + lookahead < tiles + 2 * lookahead;
      if (publishes) (warps == 1 ? work : control).push_back({TraceId::Publish, step, 1});
    }
    for (const auto& rank : tracks) {
      for (std::size_t track = 0; track < rank.size(); ++track) {
        CAPTURE(track);
        const bool isFirst = track % traceRecordersPerBlock == 0;
        if (warps == 1 && !isFirst) {
          CHECK(rank[track].empty());
        } else {
          CHECK((spansOf(rank[track]) == (isFirst ? work : control)));
        }
      }
    }
  }
}

TEST_CASE("traced: packets, of both patterns") {
  constexpr std::size_t count = 64;
  Backend<> backend;
  const auto check = [&]<Pattern pattern>(const std::vector<RecordedSpan>& expected) {
    using Collective =
        AllReduce<float, Sum, AllReduceConfig{.protocol = Protocol::LL16, .pattern = pattern, .ranks = tracedRanks}>;
    typename Collective::Args args{};
    args.scratch = Collective::scratchFor(count, tracedRanks);
    const auto tracks = tracksOf<Collective>(backend, {tracedRanks, 1, 1}, count, args);
    for (const auto& rank : tracks) {
      // The number of rows of a one-shot depends on the width of a warp; compare the first.
      auto spans = spansOf(rank[0]);
      REQUIRE(spans.size() >= expected.size());
      spans.resize(expected.size());
      CHECK((spans == expected));
    }
  };
  const RecordedSpan whole{TraceId::AllReduce, count * sizeof(float), 0};
  check.template operator()<Pattern::OneShot>({whole, {TraceId::Push, 0, 1}, {TraceId::Reduce, 0, 1}});
  check.template operator()<Pattern::TwoShot>(
      {whole, {TraceId::Push, 0, 1}, {TraceId::Reduce, 0, 1}, {TraceId::Collect, 0, 1}});
}

}  // namespace mscclpp::test
