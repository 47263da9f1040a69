// Cases of collective/joined_calls.hpp: several calls as one, over each session.
#pragma once

#include <doctest/doctest.h>

#include <vector>

#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/collective/joined_calls.hpp"
#include "mscclpp/collective/reduce_scatter.hpp"
#include "tests/backend/backend.hpp"

namespace mscclpp::test {

inline constexpr int mostJoined = 8;

/// Of all ranks: the number of calls, and where their arrays begin in a rank's memory, in elements.
struct JoinedArraysOfRanks {
  int calls;
  std::size_t counts[mostJoined];
  std::size_t inputs[mostJoined];
  std::size_t outputs[mostJoined];
};

template <class Collective>
struct JoinedCallsBody {
  using T = typename Collective::Element;
  typename Collective::Args args;  ///< without the members that differ between ranks
  Window<> epochs, data;
  JoinedArraysOfRanks arrays;

  template <class Joined, class MakeAccess>
  MSCCLPP_HOST_DEVICE Joined join(const MakeAccess& make) const {
    Joined joined{{{make(0), make(1), make(2), make(3), make(4), make(5), make(6), make(7)}, {}, {}, 0}};
    joined.setCounts(arrays.counts, arrays.calls);
    return joined;
  }

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    auto mine = args;
    mine.team = decltype(mine.team)(rank, args.team.size());
    mine.epochs = {reinterpret_cast<std::uint64_t*>(epochs.at(rank))};
    auto* const elements = reinterpret_cast<T*>(data.at(rank));
    const auto source = join<JoinedCallSource<T, ArraySource<T>, mostJoined>>(
        [&](int c) { return ArraySource<T>(elements + arrays.inputs[c]); });
    const auto sink = join<JoinedCallSink<T, ArraySink<T>, mostJoined>>(
        [&](int c) { return ArraySink<T>(elements + arrays.outputs[c]); });
    mine.count = source.count();
    Collective::run(grid, mine, source, sink);
  }
};

/// Integers: sums are exact.
template <class T>
T joinedValue(int rank, std::size_t i) {
  return static_cast<T>(i * 7 + i / 5 + static_cast<std::size_t>(rank) * 1001);
}

/// Checks a rank's whole memory after calls of these counts, every second of them in place.
template <class Collective>
void checkJoinedCalls(const std::vector<std::size_t>& counts, bool isScattered) {
  using T = typename Collective::Element;
  using Scratch = typename Collective::Scratch;
  constexpr int ranks = 3;
  constexpr auto parts = static_cast<std::size_t>(ranks);
  CAPTURE(Collective::configuration.protocol);
  Backend<> backend;
  JoinedCallsBody<Collective> body{};
  body.arrays.calls = static_cast<int>(counts.size());
  std::size_t used = 1;  // misaligned
  std::size_t packs = 0;
  for (std::size_t c = 0; c < counts.size(); ++c) {
    body.arrays.counts[c] = counts[c];
    packs += ceilDivide(counts[c], static_cast<std::size_t>(packSize<T>));
    body.arrays.inputs[c] = used;
    used += (isScattered ? parts : 1) * counts[c] + 1 + c % 2;
    body.arrays.outputs[c] = used;
    used += counts[c] + 1;
  }
  // In place, an all-reduce; a part of a reduce-scatter is at another place on each rank.
  for (std::size_t c = 0; c < counts.size(); c += 2) {
    if (!isScattered) body.arrays.outputs[c] = body.arrays.inputs[c];
  }

  const std::size_t count = packs * packSize<T>;
  constexpr PipelineShape shape{.tilePacks = 8, .blocks = 2, .slots = 4};
  body.args.team = decltype(body.args.team)(0, ranks);
  body.args.scratch = Collective::scratchFor(count, ranks, shape);
  body.args.wait = backend.wait();
  const auto scratch = backend.allocate(ranks, body.args.scratch.windowBytes(), Scratch::initialByte);
  auto epochs = backend.allocate(ranks, epochWords * sizeof(std::uint64_t), 0);
  auto data = backend.allocate(ranks, used * sizeof(T), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    body.args.window.base[rank] = scratch.window().at(rank);
    epochs.write(rank, std::vector<std::uint64_t>(epochWords, Scratch::firstEpoch));
    std::vector<T> values(used);
    for (std::size_t i = 0; i < used; ++i) values[i] = joinedValue<T>(rank, i);
    data.write(rank, values);
  }
  body.epochs = epochs.window();
  body.data = data.window();
  backend.launch({ranks, shape.blocks, 2}, body);

  for (int rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    std::vector<T> wanted(used);
    for (std::size_t i = 0; i < used; ++i) wanted[i] = joinedValue<T>(rank, i);
    for (std::size_t c = 0; c < counts.size(); ++c) {
      const std::size_t part = isScattered ? static_cast<std::size_t>(rank) * counts[c] : 0;
      for (std::size_t i = 0; i < counts[c]; ++i) {
        T sum = 0;
        for (int r = 0; r < ranks; ++r) {
          sum = static_cast<T>(sum + joinedValue<T>(r, body.arrays.inputs[c] + part + i));
        }
        wanted[body.arrays.outputs[c] + i] = sum;
      }
    }
    CHECK((data.template read<T>(rank) == wanted));
  }
}

/// One call, as many as there may be, with and without elements between their messages.
template <class Collective>
void checkJoinedCalls(bool isScattered = false) {
  checkJoinedCalls<Collective>({13}, isScattered);
  checkJoinedCalls<Collective>({5, 0, 16, 131, 1}, isScattered);
  checkJoinedCalls<Collective>({32, 8, 300, 1, 2, 0, 64, 7}, isScattered);
  checkJoinedCalls<Collective>({0, 9, 0}, isScattered);
}

TEST_CASE("joined calls: all-reduces as one, over packets and a pipeline") {
  checkJoinedCalls<
      AllReduce<std::int32_t, Sum, AllReduceConfig{.protocol = Protocol::Sentinel, .pattern = Pattern::OneShot}>>();
  checkJoinedCalls<
      AllReduce<std::int32_t, Sum, AllReduceConfig{.protocol = Protocol::LL16, .pattern = Pattern::TwoShot}>>();
  checkJoinedCalls<
      AllReduce<std::uint16_t, Sum, AllReduceConfig{.protocol = Protocol::Simple, .pattern = Pattern::TwoShot}>>();
}

TEST_CASE("joined calls: reduce-scatters as one, over packets and a pipeline") {
  checkJoinedCalls<ReduceScatter<std::int32_t, Sum, CollectiveConfig{.protocol = Protocol::Sentinel}>>(true);
  checkJoinedCalls<ReduceScatter<std::uint16_t, Sum, CollectiveConfig{.protocol = Protocol::Simple}>>(true);
}

}  // namespace mscclpp::test
