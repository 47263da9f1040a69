// The bandwidth form of combine: a warp adds up whole rows, with the loads of many packs in flight.
#pragma once

#include "mscclpp/arch/nan.hpp"
#include "mscclpp/arch/rounding.hpp"
#include "mscclpp/arch/warp.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/expert_rows.hpp"
#include "mscclpp/moe/token_choices.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp::moe {

/// A pack of sums, rounded. NaNs have the same bits on all ranks.
template <class T>
MSCCLPP_INLINE Pack<T> roundedPack(const float (&sums)[packSize<T>]) {
  Pack<T> pack;
  MSCCLPP_UNROLL
  for (int k = 0; k < packSize<T>; ++k) pack[k] = narrow<T>(arch::canonicalNan(sums[k]));
  return pack;
}

/// What a row is the sum of: results of this rank's experts, which make up its part, and the parts of other ranks; in
/// all at most as many as a token has choices. The results are terms 0, 1, ..., the parts terms room - 1, room - 2, ...
/// in the order of ranks. Spread over the lanes of a warp, as ChoiceLanes are.
template <WarpGroup Warp>
struct RowTerms {
  using Lanes = ChoiceLanes<Warp>;
  std::uint32_t positions[Lanes::held];  ///< of the results
  std::uint32_t weights[Lanes::held];    ///< of the results
  /// Halves of the address of a part or, if the source has row(), a result; else of a slot that is not used.
  std::uint32_t low[Lanes::held], high[Lanes::held];
  int results, parts;
  int partsBefore;  ///< of the ranks before this one
  int room;         ///< maxTopk, or half of that if it is enough
};

/// The rows that a warp sends and receives in a call of Combine. Made by all lanes, which also call all functions.
template <class T, class Call>
class RowSums {
 public:
  using Session = typename Call::Session;
  using Warp = typename Session::Warp;
  using Lanes = ChoiceLanes<Warp>;
  using Terms = RowTerms<Warp>;

  MSCCLPP_INLINE explicit RowSums(Call& call) : call_(call), session_(call.session), warp_(call.session.warp()) {}

  /// Sends this rank's parts of the rows first, first + stride, ... of those from other ranks, or receives the rows of
  /// this rank's tokens first, first + stride, .... While the first loads of a row are under way, the row before it is
  /// announced, since the release of its flag takes as long as they do, or the next one is awaited. One piece of code
  /// for both, which stays in the cache of instructions.
  MSCCLPP_INLINE void run(bool sends, std::uint32_t first, std::uint32_t stride) const {
    constexpr Row none{maxTeamSize, 0xffffffffu};
    Row sent = none;
    Row row = none;
    Row next = find(sends, {0, first});
    RankRows ofNext = rowsOf(sends, next);
    Terms terms = resultsOf(0, none.row);
    countResults(terms);
    terms.parts = terms.partsBefore = 0;
    terms.room = half;
    MSCCLPP_NO_UNROLL
    do {  // at first without a row
      const Row later = find(sends, {next.place, next.row + stride});
      Terms termsOfNext;
      const auto meanwhile = [&] {
        const RankRows ofLater = rowsOf(sends, later);
        termsOfNext = termsOf(sends, next, ofNext, sent);
        ofNext = ofLater;
      };
      add(terms, isRow(sends, row) ? call_.args.scratch.rowPacks : 0, meanwhile,
          [&](std::uint32_t pack, const Pack<T>& sums) {
            if (sends) {
              session_.send(session_.rankInOrder(row.place), call_.args.scratch.dataSlot(row.row, pack),
                            toWord<T>(sums));
            } else {
              call_.sink(row.row, pack, sums);
            }
          });
      if (warp_.any(hasFailed(call_.wait))) return;
      sent = row;
      row = next;
      next = later;
      terms = termsOfNext;
    } while (isRow(sends, row));
    if (sends) publish(sent);
  }

 private:
  static constexpr int width = Warp::width;
  static constexpr int packs = 2;  // of a lane in a column, with maxTopk terms: as many as registers hold
  static constexpr std::uint32_t columnPacks = packs * width;
  static constexpr int half = maxTopk / 2;
  static constexpr bool hasAddresses = requires(const typename Call::Source& source) { source.row(0u); };

  /// A row that this rank has received in the dispatch, and sends back: the rank it is from, by its place in the
  /// session's order, and its number among those from there. Or a token of this rank, which it receives: with place 0.
  struct Row {
    int place;
    std::uint32_t row;
  };
  /// The rows of a token at the ranks, -1 where it has none: lane l has ranks l, l + width, ...
  struct RankRows {
    static constexpr int held = (Call::mostRanks + width - 1) / width;
    std::int32_t at[held];
  };

  // ---- terms ----

  /// The row itself or, if there are not so many from its rank, the one that follows as much later; isRow() is false
  /// if there is none.
  MSCCLPP_INLINE Row find(bool sends, Row row) const {
    MSCCLPP_NO_UNROLL
    for (; sends && isRow(sends, row); ++row.place) {
      const std::uint32_t rows = call_.args.handle.received[session_.rankInOrder(row.place)];
      if (row.row < rows) break;
      row.row -= rows;
    }
    return row;
  }
  MSCCLPP_INLINE bool isRow(bool sends, const Row& row) const {
    return sends ? row.place < call_.args.team.size() - 1 : row.row < call_.args.count;
  }
  MSCCLPP_INLINE void publish(const Row& row) const {
    if (isRow(true, row)) session_.publish(session_.rankInOrder(row.place), row.row);
  }
  /// Of a token that is received.
  MSCCLPP_INLINE RankRows rowsOf(bool sends, const Row& row) const {
    RankRows rows;
    MSCCLPP_UNROLL
    for (int h = 0; h < RankRows::held; ++h) {
      const int rank = h * width + warp_.rank();
      const bool isRank = rank < call_.args.team.size() && !sends && isRow(sends, row);
      rows.at[h] = isRank ? call_.args.handle.indexAt(call_.args.dimensions, row.row, rank) : -1;
    }
    return rows;
  }

  /// The terms of a row, or none. Announces the row `sent`, or waits until the parts have been.
  MSCCLPP_INLINE Terms termsOf(bool sends, const Row& row, const RankRows& rows, const Row& sent) const {
    int from = call_.args.team.rank();
    std::uint32_t ownRow = 0xffffffffu;  // of those from that rank
    if (!sends) {
      MSCCLPP_UNROLL
      for (int h = 0; h < RankRows::held; ++h) {
        const std::uint32_t ofSelf = warp_.shuffle(static_cast<std::uint32_t>(rows.at[h]), from & (width - 1));
        if (from / width == h) ownRow = ofSelf;
      }
    } else if (isRow(sends, row)) {
      from = session_.rankInOrder(row.place);
      ownRow = row.row;
    }
    Terms terms = resultsOf(from, ownRow);
    if (sends) {
      publish(sent);
    } else {
      awaitParts(rows);
    }
    countResults(terms);
    terms.parts = terms.partsBefore = 0;
    terms.room = terms.results <= half ? half : maxTopk;
    if (!sends) addParts(terms, rows);
    return terms;
  }

  /// The results for a row from a rank, -1: none. countResults() completes them once they are loaded.
  MSCCLPP_INLINE Terms resultsOf(int from, std::uint32_t row) const {
    const auto& args = call_.args;
    const std::size_t entry = Handle::entry(args.dimensions, from, row);
    Terms terms{};
    MSCCLPP_UNROLL
    for (int q = 0; q < Lanes::held; ++q) {
      const int choice = Lanes::choiceOf(warp_, q);
      const std::size_t at = entry + static_cast<std::size_t>(choice);
      const bool isEntry = static_cast<std::int32_t>(row) >= 0 && choice < args.dimensions.topk;
      terms.positions[q] = static_cast<std::uint32_t>(isEntry ? args.handle.positions[at] : -1);
      terms.weights[q] = isEntry ? arch::bitCast<std::uint32_t>(args.handle.weights[at]) : 0u;
    }
    return terms;
  }
  MSCCLPP_INLINE void countResults(Terms& terms) const {
    terms.results = 0;
    MSCCLPP_UNROLL
    for (int q = 0; q < Lanes::held; ++q) {
      // They end before the first -1: what follows is of earlier calls.
      const std::uint32_t present = warp_.ballot(static_cast<std::int32_t>(terms.positions[q]) >= 0);
      if (terms.results == q * width) terms.results += arch::countBits(present & ~(present + 1));
      const int term = Lanes::choiceOf(warp_, q);
      setAddress(terms, q, unused());
      if constexpr (hasAddresses) {
        if (term < terms.results) setAddress(terms, q, call_.source.row(terms.positions[q]));
      }
    }
  }

  MSCCLPP_INLINE void awaitParts(const RankRows& rows) const {
    MSCCLPP_UNROLL
    for (int h = 0; h < RankRows::held; ++h) {
      const int rank = h * width + warp_.rank();
      if (!isPart(rows, h)) continue;
      session_.awaitAlone(rank, static_cast<std::uint32_t>(rows.at[h]));
    }
    warp_.sync();
  }
  MSCCLPP_INLINE bool isPart(const RankRows& rows, int h) const {
    return rows.at[h] >= 0 && h * width + warp_.rank() != call_.args.team.rank();
  }
  MSCCLPP_INLINE void addParts(Terms& terms, const RankRows& rows) const {
    const int ranks = call_.args.team.size();
    std::uint32_t parts[RankRows::held];  // bits of lanes
    MSCCLPP_UNROLL
    for (int h = 0; h < RankRows::held; ++h) {
      parts[h] = h * width < ranks ? warp_.ballot(isPart(rows, h)) : 0;
      terms.parts += arch::countBits(parts[h]);
      const int before = call_.args.team.rank() - h * width;  // ranks that come first
      if (before > 0) terms.partsBefore += arch::countBits(before < 32 ? parts[h] & ((1u << before) - 1) : parts[h]);
    }
    if (terms.results + terms.parts > half) terms.room = maxTopk;
    int term = terms.room;
    MSCCLPP_UNROLL
    for (int h = 0; h < RankRows::held; ++h) {
      MSCCLPP_NO_UNROLL
      for (std::uint32_t left = parts[h]; left != 0; left &= left - 1) {
        const int lane = arch::countBits((left & (~left + 1)) - 1);
        const std::uint32_t row = warp_.shuffle(static_cast<std::uint32_t>(rows.at[h]), lane);
        --term;
        MSCCLPP_UNROLL
        for (int q = 0; q < Lanes::held; ++q) {
          if (Lanes::choiceOf(warp_, q) != term) continue;
          setAddress(terms, q, session_.receivedAt(h * width + lane, call_.args.scratch.dataSlot(row, 0)));
        }
      }
    }
  }
  /// A slot for rows from this rank to itself, which pass through none.
  MSCCLPP_INLINE const std::byte* unused() const { return session_.receivedAt(call_.args.team.rank(), 0); }
  static MSCCLPP_INLINE void setAddress(Terms& terms, int q, const std::byte* row) {
    const auto address = reinterpret_cast<std::uint64_t>(row);
    terms.low[q] = static_cast<std::uint32_t>(address);
    terms.high[q] = static_cast<std::uint32_t>(address >> 32);
  }

  // ---- sums ----

  struct Sums {
    float at[packs][packSize<T>];
  };

  /// Adds up a row of `rowPacks` packs, and calls store(pack, sums) for each: a column of packs after the other or,
  /// with few terms, two at a time. meanwhile() is called once the first loads are under way, also without packs.
  template <class Meanwhile, class Store>
  MSCCLPP_INLINE void add(const Terms& terms, std::uint32_t rowPacks, const Meanwhile& meanwhile,
                          const Store& store) const {
    const std::uint32_t toSecond = terms.room == half ? columnPacks : 0;  // of the two columns
    std::uint32_t pack = 0;
    MSCCLPP_NO_UNROLL
    do {
      Word128 words[maxTopk][packs];
      MSCCLPP_UNROLL
      for (int t = 0; t < maxTopk; ++t) load(terms, t & (terms.room - 1), t < half ? pack : pack + toSecond, words[t]);
      if (pack == 0) meanwhile();
      Sums sums = {};
      MSCCLPP_UNROLL
      for (int t = 0; t < maxTopk; ++t) {
        if (t == half && terms.room == half) {
          finish<half>(terms, words, sums);
          storeColumn(pack, rowPacks, sums, store);
          sums = {};
        }
        const int term = t & (terms.room - 1);
        const float weight = arch::bitCast<float>(Lanes::valueOf(warp_, terms.weights, term));
        if (term < terms.results) addWords(weight, words[t], sums);
      }
      finish<maxTopk>(terms, words, sums);
      storeColumn(pack + toSecond, rowPacks, sums, store);
      pack += toSecond + columnPacks;
    } while (pack < rowPacks);
  }

  /// Loads a term of a column, in all lanes: the last pack again, where the row has ended. Without a condition, which
  /// would make each load wait for the one before.
  MSCCLPP_INLINE void load(const Terms& terms, int term, std::uint32_t first, Word128 (&words)[packs]) const {
    const std::uint32_t last = call_.args.scratch.rowPacks - 1;
    const std::uint32_t position = hasAddresses ? 0 : Lanes::valueOf(warp_, terms.positions, term);
    const std::uint32_t low = Lanes::valueOf(warp_, terms.low, term);
    const std::uint32_t high = Lanes::valueOf(warp_, terms.high, term);
    const auto* const row = reinterpret_cast<const std::byte*>(static_cast<std::uint64_t>(high) << 32 | low);
    MSCCLPP_UNROLL
    for (int j = 0; j < packs; ++j) {
      const std::uint32_t pack = packOf(first, j) < last ? packOf(first, j) : last;
      words[j] = arch::loadWide(row + pack * sizeof(Word128));
      if constexpr (!hasAddresses) {
        if (term < terms.results) words[j] = toWord<T>(call_.source(position, pack));
      }
    }
  }

  /// Rounds the sum of the results, as if it had travelled, and adds it and the parts, which are the last ones of the
  /// first `end` words, in the order of ranks.
  template <int end>
  MSCCLPP_INLINE void finish(const Terms& terms, const Word128 (&words)[maxTopk][packs], Sums& sums) const {
    Word128 own[packs];
    MSCCLPP_UNROLL
    for (int j = 0; j < packs; ++j) own[j] = toWord<T>(roundedPack<T>(sums.at[j]));
    sums = {};
    MSCCLPP_UNROLL
    for (int part = 0; part < end; ++part) {
      if (part >= terms.parts) break;
      if (part == terms.partsBefore) addWords(1.0f, own, sums);
      addWords(1.0f, words[end - 1 - part], sums);
    }
    if (terms.partsBefore == terms.parts) addWords(1.0f, own, sums);
  }
  static MSCCLPP_INLINE void addWords(float weight, const Word128 (&words)[packs], Sums& sums) {
    MSCCLPP_UNROLL
    for (int j = 0; j < packs; ++j) {
      const Pack<T> pack = fromWord<T>(words[j]);
      MSCCLPP_UNROLL
      for (int k = 0; k < packSize<T>; ++k) {
        sums.at[j][k] = arch::multiplyAdd(weight, widen<T>(pack[k]), sums.at[j][k]);
      }
    }
  }
  template <class Store>
  MSCCLPP_INLINE void storeColumn(std::uint32_t first, std::uint32_t rowPacks, const Sums& sums,
                                  const Store& store) const {
    MSCCLPP_UNROLL
    for (int j = 0; j < packs; ++j) {
      const std::uint32_t pack = packOf(first, j);
      if (pack < rowPacks) store(pack, roundedPack<T>(sums.at[j]));
    }
  }
  MSCCLPP_INLINE std::uint32_t packOf(std::uint32_t first, int j) const {
    return first + static_cast<std::uint32_t>(j * width + warp_.rank());
  }

  const Call& call_;
  Session& session_;
  const Warp& warp_;
};

}  // namespace mscclpp::moe
