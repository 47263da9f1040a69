// Cases of the collectives that are lists of stages with equal counts: all_gather.hpp, reduce_scatter.hpp,
// all_to_all.hpp, broadcast.hpp, reduce.hpp, gather.hpp, scatter.hpp. Each file that includes this one checks some.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "collective_tester.hpp"
#include "tests/backend/longer_delays.hpp"
#include "tests/backend/sanitizer.hpp"

namespace mscclpp::test {

inline constexpr std::size_t capacityPacks = 45;
inline constexpr PipelineShape smallTiles{.tilePacks = 8, .blocks = 2, .slots = 4};

/// The largest number of threads of an emulated launch; each is a thread of the operating system.
inline constexpr int maxEmulatedThreads = 96;

inline Shape shapeFor(Protocol protocol, int ranks) {
  if (takesAnySize(protocol)) return {ranks, smallTiles.blocks, Backend<>::onGpu || ranks <= 3 ? 2 : 1};
  if (Backend<>::onGpu) return {ranks, 2, 2};
  const int warps = maxEmulatedThreads / (ranks * warpWidthFor(protocol));
  return {ranks, warps >= 4 ? 2 : 1, warps >= 2 ? 2 : 1};
}

/// Edge cases of lengths, unaligned addresses, calls in place and changing roots.
template <class T>
std::vector<TestCall> edgeCaseCalls(int ranks) {
  const std::size_t pack = packSize<T>;
  const std::size_t capacity = capacityPacks * pack;
  std::vector<TestCall> calls{{1},
                              {pack - 1, 0, true},
                              {pack, 0, false, 0, 1},
                              {0},
                              {pack + 1, 0, false, 1, 0},
                              {8 * pack - 1, 0, true, 1, 1},
                              {capacity},
                              {3, 0, true},
                              {17 * pack + 1, 0, false, 1, 1},
                              {capacity - 1, 0, true}};
  for (std::size_t i = 0; i < calls.size(); ++i) calls[i].root = static_cast<int>(i) % ranks;
  return calls;
}

/// Calls of random lengths and roots.
template <class T>
std::vector<TestCall> variedCalls(int ranks, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<TestCall> calls;
  for (int index = 0; index < maxTestCalls; ++index) {
    const std::size_t count = random() % (random() % 3 == 0 ? capacityPacks * packSize<T> : 40);
    calls.push_back({count, static_cast<int>(random() % static_cast<unsigned>(ranks)), random() % 2 == 0,
                     static_cast<int>(random() % 4), static_cast<int>(random() % 4)});
  }
  return calls;
}

/// Checks a collective with these numbers of ranks.
template <class C>
void checkCollective(const std::vector<int>& teams) {
  using T = typename C::Element;
  constexpr Protocol protocol = C::configuration.protocol;
  CAPTURE(protocol);
  for (const int ranks : teams) {
    CAPTURE(ranks);
    TesterOf<C> tester(ranks, capacityPacks * packSize<T>, smallTiles);
    tester.check(shapeFor(protocol, ranks), edgeCaseCalls<T>(ranks));
    tester.faults.delays = 20'000;
    tester.check(shapeFor(protocol, ranks), variedCalls<T>(ranks, 3));
    if (takesAnySize(protocol)) {  // many more tiles than slots
      const std::size_t count = 16 * 17 * packSize<T> + 1;
      tester.check(shapeFor(protocol, ranks), {{count, ranks - 1}, {5, 0}, {count + 2, 0, true}});
    }
  }
}

/// Checks a collective over all sessions. Of<config>: the collective.
template <template <CollectiveConfig> class Of>
void checkSessions() {
  checkCollective<Of<CollectiveConfig{Protocol::LL16}>>(thinned({1, 2, 3}, {1, 3}));
  checkCollective<Of<CollectiveConfig{Protocol::LL128Ordered}>>(thinned({2, 3}, {2}));
  checkCollective<Of<CollectiveConfig{Protocol::Sentinel}>>(thinned({2, 4}, {2}));
  checkCollective<Of<CollectiveConfig{Protocol::Simple, 0, 2}>>(thinned({1, 2, 3}, {1, 3}));
  checkCollective<Of<CollectiveConfig{Protocol::Simple, 3, 2}>>({3});
  if constexpr (!Backend<>::onGpu) {  // nvcc takes long for each
    checkCollective<Of<CollectiveConfig{Protocol::LL8}>>(thinned({2, 3}, {3}));
    checkCollective<Of<CollectiveConfig{Protocol::Simple, 0, 1}>>(thinned({2, 3}, {3}));
    if constexpr (!detectsRaces) checkCollective<Of<CollectiveConfig{Protocol::LL16, 4}>>({4});
  }
  if constexpr (Backend<>::onGpu) checkCollective<Of<CollectiveConfig{Protocol::LL128, 2}>>({2});
#if !defined(__CUDACC__)
  // Parts of arrays in one piece, as a CPU rank that is one thread copies them.
  using Serial = Of<CollectiveConfig{Protocol::Simple, 0, 2}>;
  using T = typename Serial::Element;
  TesterOf<Serial, true> serial(3, 0, {.tilePacks = 8, .blocks = 1, .slots = 4});
  serial.check({3, 1, 1}, edgeCaseCalls<T>(3));
  serial.check({3, 1, 1}, {{8 * 17 * packSize<T> + 1, 1}, {8 * 9 * packSize<T> + 3, 2, true, 1, 1}});
#endif
}

/// Checks a collective that stores straight into the outputs of the peers, by threads and by bulk copies.
template <template <CollectiveConfig> class Of>
void checkOutputs() {
  constexpr CollectiveConfig bulk{.protocol = Protocol::Bulk, .link = Link::Outputs};
  checkCollective<Of<CollectiveConfig{.protocol = Protocol::Simple, .link = Link::Outputs}>>(
      thinned({1, 2, 3}, {1, 3}));
  checkCollective<Of<bulk>>(thinned({1, 2, 3, 5}, {1, 3}));
  checkCollective<Of<CollectiveConfig{.protocol = Protocol::Bulk, .ranks = 3, .link = Link::Outputs}>>({3});
  // Parts of several chunks.
  using T = typename Of<bulk>::Element;
  constexpr std::size_t count = (200 << 10) / sizeof(T);
  TesterOf<Of<bulk>> tester(2, 0, {.tilePacks = 4096, .blocks = 2});
  tester.check({2, 2, 2}, {{count, 1}, {count + 1, 0, true}, {count - 8, 1, false, 1, 1}, {count, 0, false, 0, 1}});
  tester.check({2, 1, 1}, {{5, 1}, {count + 8, 0}});
}

/// A collective whose slots are reused by the data: too few of them are noticed.
template <template <CollectiveConfig> class Of>
void checkDetectsTooFewSlots() {
  using Packets = Of<CollectiveConfig{Protocol::LL16}>;
  using T = typename Packets::Element;
  const std::size_t count = capacityPacks * packSize<T>;
  const auto check = [&](auto&& tester, int wrongSlots) {
    tester.faults.slowRank = 1;
    const auto isWrong = [&](std::uint64_t factor) {
      tester.faults.sinkDelay = factor * 1'000'000;
      const auto outcome = tester.run({2, 1, 1}, {{count}, {count}, {count}, {count}});
      return outcome.record || outcome.difference != "";
    };
    CHECK_FALSE(isWrong(1));
    tester.faults.wrongSlots = wrongSlots;
    CHECK(isFoundWithLongerDelays([&](std::uint64_t factor) {
      tester.timeout = factor * 500'000'000;
      return isWrong(factor);
    }));
  };
  check(TesterOf<Packets>(2, count, smallTiles), 1);
  using Pipelined = Of<CollectiveConfig{Protocol::Simple, 0, 2}>;
  check(TesterOf<Pipelined>(2, count, PipelineShape{.tilePacks = 8, .blocks = 1, .slots = 4}), 2);
}

}  // namespace mscclpp::test
