// The layout of a routing, for warps of several widths, and the same by single blocks, against one that is computed
// token by token.
#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/emulation/launch.hpp"
#include "mscclpp/moe/block_routing.hpp"
#include "mscclpp/moe/routing_layout.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "mscclpp/sync/grid_gate.hpp"

using namespace mscclpp;

namespace {

struct Layout {
  std::vector<std::uint32_t> perExpert, perRank, segmentCounts, words;
  std::vector<std::int32_t> rankIndex, expertIndex;

  /// With memory for the computation in so many blocks.
  Layout(const moe::Dimensions& d, std::uint32_t tokens, int blocks = 0)
      : perExpert(static_cast<std::size_t>(d.experts), 7),
        perRank(static_cast<std::size_t>(d.ranks), 7),
        segmentCounts(moe::maxSegments * static_cast<std::size_t>(d.experts + d.ranks), 7),
        words(moe::routingLayoutWords(d) * static_cast<std::size_t>(blocks), 7),
        rankIndex(std::size_t{tokens} * static_cast<std::size_t>(d.ranks), 7),
        expertIndex(std::size_t{tokens} * static_cast<std::size_t>(d.topk), 7) {}
  moe::RoutingLayout view() {
    return {perExpert.data(), perRank.data(), rankIndex.data(), expertIndex.data(), segmentCounts.data()};
  }
  template <class GridType>
  std::uint32_t* wordsOf(const GridType& grid) {
    return words.data() +
           words.size() / static_cast<std::size_t>(grid.blockCount()) * static_cast<std::size_t>(grid.blockIndex());
  }
};

std::vector<std::int32_t> randomExperts(const moe::Dimensions& d, std::uint32_t tokens) {
  std::mt19937 random(static_cast<unsigned>(d.topk * 100 + d.experts) + tokens);
  std::vector<std::int32_t> experts;
  for (std::size_t i = 0; i < std::size_t{tokens} * static_cast<std::size_t>(d.topk); ++i) {
    // Dropped, out of range, and often the same.
    experts.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(d.experts + 3)) - 1);
    if (random() % 4 == 0 && i > 0) experts.back() = experts[i - 1];
  }
  return experts;
}

Layout expected(const moe::Dimensions& d, const std::vector<std::int32_t>& experts, std::uint32_t tokens) {
  Layout layout(d, tokens);
  layout.perExpert.assign(layout.perExpert.size(), 0);
  layout.perRank.assign(layout.perRank.size(), 0);
  layout.rankIndex.assign(layout.rankIndex.size(), -1);
  layout.expertIndex.assign(layout.expertIndex.size(), -1);
  for (std::uint32_t token = 0; token < tokens; ++token) {
    std::vector<bool> isChosen(static_cast<std::size_t>(d.experts));
    for (std::size_t j = 0; j < static_cast<std::size_t>(d.topk); ++j) {
      const std::size_t at = token * static_cast<std::size_t>(d.topk) + j;
      const std::int32_t expert = experts[at];
      if (expert < 0 || expert >= d.experts || isChosen[static_cast<std::size_t>(expert)]) continue;
      isChosen[static_cast<std::size_t>(expert)] = true;
      layout.expertIndex[at] = static_cast<std::int32_t>(layout.perExpert[static_cast<std::size_t>(expert)]++);
      const auto rank = static_cast<std::size_t>(expert / d.expertsPerRank());
      std::int32_t& index = layout.rankIndex[token * static_cast<std::size_t>(d.ranks) + rank];
      if (index < 0) index = static_cast<std::int32_t>(layout.perRank[rank]++);
    }
  }
  return layout;
}

template <int Width>
void checkLayout(int blocks, int topk, std::uint32_t tokens, int experts = 12) {
  CAPTURE(Width);
  CAPTURE(topk);
  CAPTURE(tokens);
  const moe::Dimensions d{tokens + 1, topk, experts, 3};
  const auto chosen = randomExperts(d, tokens);
  const moe::Routing<std::int32_t> routing{chosen.data(), nullptr, tokens};
  Layout layout(d, tokens, blocks);
  const moe::RoutingLayout view = layout.view();
  if constexpr (Width == 1) {
    CHECK(moe::layOutRouting(
        cpu::SerialGrid(), routing, d, view, layout.words.data(), [](std::uint32_t) { return false; },
        [](std::uint32_t blocks) { return blocks == 1; }));
  } else {
    GridBarrier barrier{};
    GridGate gate{};
    emulation::launch<Width>({.blocks = blocks, .threads = 2 * Width}, [&](int, const auto& grid) {
      BoundedWait wait(nullptr, 10'000'000'000);
      moe::layOutRouting(
          grid, routing, d, view, layout.wordsOf(grid),
          [&](std::uint32_t some) { return !grid.block().syncAny(!barrier.sync(grid, some, wait)); },
          [&](std::uint32_t some) { return !grid.block().syncAny(!gate.pass(grid, some, 7, wait)); });
    });
  }
  const Layout wanted = expected(d, chosen, tokens);
  CHECK(layout.perExpert == wanted.perExpert);
  CHECK(layout.perRank == wanted.perRank);
  CHECK(layout.rankIndex == wanted.rankIndex);
  CHECK(layout.expertIndex == wanted.expertIndex);
}

/// Each of two blocks computes all of it, twice in the same memory, for other tokens at first.
void checkBlockRouting(int threads, int topk, std::uint32_t tokens) {
  CAPTURE(threads);
  CAPTURE(topk);
  CAPTURE(tokens);
  const moe::Dimensions d{tokens + 40, topk, 12, 3};
  const auto others = randomExperts(d, tokens + 40), experts = randomExperts(d, tokens);
  const Layout wanted = expected(d, experts, tokens);
  std::vector<std::uint32_t> words[2];
  for (auto& memory : words) memory.assign(moe::blockRoutingWords(d), 0xdeadbeefu);
  Layout found[2] = {Layout(d, tokens), Layout(d, tokens)};
  emulation::launch<4>({.blocks = 2, .threads = threads}, [&](int, const auto& grid) {
    const auto block = grid.block();
    const int index = grid.blockIndex();
    const moe::BlockRouting routing(grid, d, words[index].data());
    routing.make(moe::Routing<std::int32_t>{others.data(), nullptr, tokens + 40});
    routing.make(moe::Routing<std::int32_t>{experts.data(), nullptr, tokens});
    Layout& layout = found[index];
    const auto share = [&](std::size_t count, const auto& f) {
      for (auto i = static_cast<std::size_t>(block.rank()); i < count; i += static_cast<std::size_t>(block.size()))
        f(i);
    };
    share(12,
          [&](std::size_t e) { layout.perExpert[e] = routing.countOfExpert(static_cast<std::uint32_t>(e), tokens); });
    share(3, [&](std::size_t r) { layout.perRank[r] = routing.countOfRank(static_cast<int>(r), tokens); });
    share(layout.rankIndex.size(), [&](std::size_t i) {
      layout.rankIndex[i] = routing.indexAtRank(static_cast<std::uint32_t>(i / 3), static_cast<int>(i % 3));
    });
    share(layout.expertIndex.size(), [&](std::size_t i) {
      const bool counts = wanted.expertIndex[i] >= 0;
      const auto token = static_cast<std::uint32_t>(i / static_cast<std::size_t>(topk));
      layout.expertIndex[i] =
          counts ? static_cast<std::int32_t>(routing.indexAtExpert(token, static_cast<std::uint32_t>(experts[i]))) : -1;
    });
  });
  for (const Layout& layout : found) {
    CHECK(layout.perExpert == wanted.perExpert);
    CHECK(layout.perRank == wanted.perRank);
    CHECK(layout.rankIndex == wanted.rankIndex);
    CHECK(layout.expertIndex == wanted.expertIndex);
  }
}

}  // namespace

TEST_CASE("routing: by a block, up to and beyond the tokens of a word") {
  for (const std::uint32_t tokens : {0u, 1u, 31u, 32u, 33u, 97u}) checkBlockRouting(8, 3, tokens);
  for (int topk = 1; topk <= moe::maxTopk; ++topk) checkBlockRouting(12, topk, 45);
}

TEST_CASE("routing: every number of choices, with warps of several widths") {
  for (int topk = 1; topk <= moe::maxTopk; ++topk) {
    for (const std::uint32_t tokens : {0u, 1u, 5u, 131u}) {
      checkLayout<1>(1, topk, tokens);
      checkLayout<4>(1, topk, tokens);
      checkLayout<16>(1, topk, tokens);
    }
  }
}

TEST_CASE("routing: in segments of the tokens, of one chunk or more, fewer or more than blocks") {
  checkLayout<16>(3, 7, 128);
  checkLayout<16>(3, 7, 129);
  checkLayout<16>(3, 2, 256);
  checkLayout<4>(3, 8, 500, 300);
  checkLayout<16>(3, 7, 1400);
  checkLayout<8>(18, 3, 17 * 128 + 1);  // more segments before the last than are added up at once
  checkLayout<1>(1, 8, 1000);
}

TEST_CASE("routing: nothing goes on after a barrier that failed") {
  const std::uint32_t tokens = 3 * moe::chunkTokens;
  const moe::Dimensions d{tokens, 2, 12, 3};
  const auto experts = randomExperts(d, tokens);
  Layout layout(d, tokens, 4);
  layout.perExpert.assign(layout.perExpert.size(), 12345);
  const moe::RoutingLayout view = layout.view();
  int barriers[4] = {}, ends[4] = {};
  bool results[4];
  emulation::launch<1>({.blocks = 4, .threads = 1}, [&](int, const auto& grid) {
    const auto failAfter = [&](int(&counts)[4]) {
      return [&](std::uint32_t blocks) {
        counts[grid.blockIndex()] += blocks == 3 ? 1 : 100;
        return false;
      };
    };
    results[grid.blockIndex()] =
        moe::layOutRouting(grid, moe::Routing<std::int32_t>{experts.data(), nullptr, tokens}, d, view,
                           layout.wordsOf(grid), failAfter(barriers), failAfter(ends));
  });
  for (int block = 0; block < 4; ++block) {
    CHECK(barriers[block] == (block < 3 ? 1 : 0));
    CHECK(ends[block] == (block < 3 ? 0 : 1));  // a block without a segment waits for the others at once
    CHECK_FALSE(results[block]);
  }
  for (const std::uint32_t count : layout.perExpert) CHECK(count == 12345);  // what follows the barrier would set it
}
