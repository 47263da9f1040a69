// The reduction of the packs of any number of ranks: which bits it gives, and which ranks its waits name, in whatever
// order packs arrive.
#include "mscclpp/collective/reduce_ranks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/packet/sentinel.hpp"

using namespace mscclpp;

namespace {

constexpr int atOnce = 4;
constexpr std::uint64_t epoch = 5;
constexpr std::uint32_t row = 3;

/// What the ranks send to this one.
struct Slots {
  std::vector<std::vector<std::byte>> of;
  std::vector<Word128> words;

  explicit Slots(int ranks, unsigned seed)
      : of(static_cast<std::size_t>(ranks),
           std::vector<std::byte>(Sentinel::bytes(32), static_cast<std::byte>(Sentinel::initialByte))) {
    std::mt19937 random(seed);
    for (int rank = 0; rank < ranks; ++rank) {
      Pack<float> pack;
      for (int i = 0; i < packSize<float>; ++i) pack[i] = static_cast<float>(random()) * 1e-3f;
      words.push_back(toWord<float>(pack));
      if (random() % 3 == 0) words.back().hi = Sentinel::poison;
    }
  }
  std::byte* at(int rank) { return of[static_cast<std::size_t>(rank)].data(); }
  void arrive(int rank) {
    Sentinel::write(cpu::SerialGroup(), at(rank), row, words[static_cast<std::size_t>(rank)], epoch);
  }
};

/// Lets a pack arrive after so many failed attempts, in the given order, and notes for whom it waited in vain.
struct ScriptedWait {
  Slots& slots;
  std::vector<int> arriving;  ///< the last one first
  std::vector<int> named = {};
  bool hasFailed = false;

  template <class Attempt>
  bool until(const WaitSite& site, Attempt&& attempt) {
    std::uint64_t seen = 0;
    // An escaped pack may take several attempts.
    for (unsigned failures = 0; !attempt(seen);) {
      if (++failures % (2 * Sentinel::attemptsPerEscapeCheck) != 0) continue;
      if (named.empty() || named.back() != site.peer) named.push_back(site.peer);
      if (arriving.empty()) {
        hasFailed = true;
        return false;
      }
      slots.arrive(arriving.back());
      arriving.pop_back();
    }
    return true;
  }
  template <class Warp, class Attempt>
  bool untilCollective(const Warp&, const WaitSite& site, Attempt&& attempt) {
    return until(site, attempt);
  }
  bool failed() const { return hasFailed; }
};

struct Outcome {
  bool arrived;
  Word128 word;
  std::vector<int> named;
};
Outcome reduce(Slots& slots, int self, const std::vector<int>& order) {
  const auto ranks = static_cast<int>(slots.of.size());
  ScriptedWait wait{slots, {order.rbegin(), order.rend()}};
  const WaitSite site{WaitOperation::Packet, self, -1, 0, epoch};
  Word128 word = slots.words[static_cast<std::size_t>(self)];
  const bool arrived = rows::reduceRanks<Sentinel, float, atOnce>(
      cpu::SerialGroup(), wait, site, Team<>(self, ranks), [&](int from) { return slots.at(from); },
      rows::RowPosition{row, 0, true, true}, epoch, word, Sum{});
  return {arrived, word, wait.named};
}

bool areSame(const Word128& one, const Word128& other) {
  return one.lo == other.lo && one.hi == other.hi;
}

}  // namespace

TEST_CASE("reduction of ranks: the sum is in rank order, in whatever order packs arrive, and slots are free again") {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const int ranks = static_cast<int>(random() % 10) + 1,
              self = static_cast<int>(random() % static_cast<unsigned>(ranks));
    CAPTURE(ranks);
    CAPTURE(self);
    Slots slots(ranks, static_cast<unsigned>(i));
    std::vector<int> order;
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank != self) order.push_back(rank);
    }
    std::shuffle(order.begin(), order.end(), random);
    const auto early = order.begin() + static_cast<std::ptrdiff_t>(random() % (order.size() + 1));
    std::for_each(order.begin(), early, [&](int rank) { slots.arrive(rank); });
    const std::vector<int> late(early, order.end());
    PackReducer<float, Sum> sum(fromWord<float>(slots.words[0]), Sum{});
    for (std::size_t rank = 1; rank < slots.words.size(); ++rank) sum.add(fromWord<float>(slots.words[rank]));
    const Outcome outcome = reduce(slots, self, late);
    CHECK(outcome.arrived);
    CHECK(areSame(outcome.word, toWord<float>(sum.finish(ranks))));
    // Only those that were late are named, and in rank order.
    CHECK(std::is_sorted(outcome.named.begin(), outcome.named.end()));
    for (const int rank : outcome.named) CHECK(std::count(late.begin(), late.end(), rank) == 1);
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == self) continue;
      const auto fetched = Sentinel::fetch(cpu::SerialGroup(), slots.at(rank), row, epoch);
      CHECK(areSame(fetched.pack, {Sentinel::poison, Sentinel::poison}));
    }
  }
}
TEST_CASE("reduction of ranks: a wait that fails names the rank, and leaves the word as it was") {
  constexpr int ranks = 7, self = 1;
  for (const int absent : {0, 2, 3, 4, 6}) {
    CAPTURE(absent);
    Slots slots(ranks, 3);
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank != self && rank != absent) slots.arrive(rank);
    }
    const Outcome outcome = reduce(slots, self, {});
    CHECK_FALSE(outcome.arrived);
    CHECK(outcome.named == std::vector<int>{absent});
    CHECK(areSame(outcome.word, slots.words[self]));
  }
}
