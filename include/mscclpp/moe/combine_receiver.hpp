// What a rank receives in a combine: the ranks' parts of its tokens' results, which it adds in the order of the ranks.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/item_queue.hpp"

namespace mscclpp::moe::parts {

// ---- the rows of a token's parts ----

/// The rows in which the parts of a token are: lane l has those of ranks l, l + width, ...
template <class Call>
struct Rows {
  static constexpr int width = Call::width;
  static constexpr int held = (Call::mostRanks + width - 1) / width;

  std::int32_t of[held];  ///< -1: none

  /// By one load of the warp; none if there is no such token. Called by all lanes.
  static MSCCLPP_INLINE Rows load(const Call& call, std::uint32_t token) {
    const auto& args = call.args;
    Rows rows;
    MSCCLPP_UNROLL
    for (int q = 0; q < held; ++q) {
      const int rank = q * width + call.session.warp().rank();
      const bool isPresent = token < static_cast<std::uint32_t>(args.count) && rank < args.team.size();
      rows.of[q] = isPresent ? args.handle.indexAt(args.dimensions, token, rank) : -1;
    }
    return rows;
  }
  MSCCLPP_INLINE std::int32_t at(int q) const {
    std::int32_t row = of[0];
    MSCCLPP_UNROLL
    for (int other = 1; other < held; ++other) row = q == other ? of[other] : row;
    return row;
  }
  /// The row of a rank. Called by all lanes.
  MSCCLPP_INLINE std::uint32_t ofRank(const Call& call, int rank) const {
    return call.session.warp().shuffle(static_cast<std::uint32_t>(at(rank / width)), rank % width);
  }
  /// The ranks that contribute, a bit for each. Called by all lanes.
  MSCCLPP_INLINE std::uint64_t contributors(const Call& call) const {
    std::uint64_t ranks = 0;
    MSCCLPP_UNROLL
    for (int q = 0; q < held; ++q) {
      ranks |= std::uint64_t{call.session.warp().ballot(of[q] >= 0)} << (q * width);
    }
    return ranks;
  }
  /// The entries of this rank's own part. Called by all lanes.
  MSCCLPP_INLINE typename Call::Entries ownEntries(const Call& call) const {
    const std::uint32_t row = ofRank(call, call.args.team.rank());
    return call.experts.entriesOf(static_cast<std::int32_t>(row) >= 0 ? call.args.team.rank() : -1, row);
  }
};

// ---- a chunk ----

/// Parts of a chunk that come from other ranks; their loads are in flight together.
template <class Call>
struct Arrivals {
  static constexpr int count = Call::Transport::hasRowFlags ? 1 : 2;
  int from[count];  ///< in the order of the ranks; -1: none
  Word128 words[count * Call::n];
  int next;  ///< the first rank after them

  /// Receives those of the first ranks of `ranks` from `next` on. Called by all lanes.
  MSCCLPP_INLINE void receive(Call& call, std::uint64_t ranks, const Rows<Call>& rows, std::uint32_t chunk) {
    constexpr int n = Call::n;
    const auto& args = call.args;
    int sources[count * n];
    std::uint32_t slots[count * n];
    bool isPresent[count * n];
    MSCCLPP_UNROLL
    for (int b = 0; b < count; ++b) {
      MSCCLPP_NO_UNROLL
      while (next < args.team.size() && (ranks >> next & 1) == 0) ++next;
      const bool exists = next < args.team.size();
      const std::uint32_t row = exists ? rows.ofRank(call, next) : 0;
      from[b] = exists ? next : -1;
      next += exists ? 1 : 0;
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        const std::uint32_t pack = call.experts.packOf(chunk, i);
        sources[b * n + i] = exists ? from[b] : 0;
        isPresent[b * n + i] = exists && pack < args.scratch.rowPacks;
        slots[b * n + i] = args.scratch.dataSlot(row, pack);
      }
    }
    call.session.template receive<count * n>(sources, slots, isPresent, words);
  }
};

/// Adds the parts of a chunk in the order of the ranks. meanwhile(receiveFirst) is called while the results of this
/// rank's experts are loaded; it calls receiveFirst() to receive what comes from others. Called by all lanes.
template <class Call, class Meanwhile>
MSCCLPP_INLINE void receiveChunk(Call& call, std::uint32_t token, std::uint32_t chunk, const Rows<Call>& rows,
                                 const typename Call::Entries& own, const Meanwhile& meanwhile) {
  using T = typename Call::Element;
  using Sums = typename Call::Sums;
  constexpr int n = Call::n;
  const int self = call.args.team.rank();
  std::uint64_t ranks = rows.contributors(call);
  bool hasOwn = false;
  Arrivals<Call> arrivals = {};
  Word128 ownWords[n];
  if constexpr (Call::addsOwnPart) {
    hasOwn = (ranks >> self & 1) != 0;
    ranks &= ~(std::uint64_t{1} << self);
    const Sums sums =
        call.experts.sumOf(own, chunk, [&] { meanwhile([&] { arrivals.receive(call, ranks, rows, chunk); }); });
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i) ownWords[i] = toWord<T>(sums.rounded(i));  // as if it had travelled
  } else {
    meanwhile([&] { arrivals.receive(call, ranks, rows, chunk); });
  }
  Sums sums = {};
  const auto addOwn = [&] {
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i) sums.add(i, ownWords[i]);
    hasOwn = false;
  };
  MSCCLPP_NO_UNROLL
  while (arrivals.from[0] >= 0) {
    const Arrivals<Call> current = arrivals;
    if constexpr (Call::Transport::hasRowFlags) arrivals.receive(call, ranks, rows, chunk);
    MSCCLPP_UNROLL
    for (int b = 0; b < Arrivals<Call>::count; ++b) {
      if (current.from[b] < 0) continue;
      if (hasOwn && current.from[b] > self) addOwn();
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) sums.add(i, current.words[b * n + i]);
    }
    if constexpr (!Call::Transport::hasRowFlags) arrivals.receive(call, ranks, rows, chunk);
  }
  if (hasOwn) addOwn();
  if (hasFailed(call.wait)) return;
  MSCCLPP_UNROLL
  for (int i = 0; i < n; ++i) {
    const std::uint32_t pack = call.experts.packOf(chunk, i);
    if (pack < call.args.scratch.rowPacks) call.sink(token, pack, sums.rounded(i));
  }
}

// ---- with flags ----

/// Waits for a piece of a token's row from every other rank that sends one: a lane for each. Called by all lanes.
template <class Call>
MSCCLPP_INLINE void awaitPiece(Call& call, const Rows<Call>& rows, std::uint32_t piece) {
  const auto& team = call.args.team;
  MSCCLPP_NO_UNROLL
  for (int q = 0; q * Call::width < team.size(); ++q) {
    const int from = q * Call::width + call.session.warp().rank();
    const std::int32_t row = rows.at(q);
    if (row >= 0 && from != team.rank()) call.session.awaitAlone(from, static_cast<std::uint32_t>(row), piece);
  }
  call.session.warp().sync();
}
/// Receives the items of a queue. The rows of a token are loaded two items before it is received, and what this rank's
/// own part needs one item before. Called by all lanes of a warp.
template <class Call>
MSCCLPP_INLINE void receivePieces(Call& call, ItemQueue queue) {
  const std::uint32_t perRow = call.itemsPerRow(), chunks = call.chunksPerItem();
  const auto items = static_cast<std::uint32_t>(call.args.count) * perRow;
  std::uint32_t item = queue.next(call.session.warp()), nextItem = queue.next(call.session.warp());
  auto rows = Rows<Call>::load(call, item / perRow), nextRows = Rows<Call>::load(call, nextItem / perRow);
  typename Call::Entries own = rows.ownEntries(call);
  MSCCLPP_NO_UNROLL
  while (item < items) {
    const std::uint32_t followingItem = queue.next(call.session.warp());
    const auto followingRows = Rows<Call>::load(call, followingItem / perRow);
    typename Call::Entries next = {};
    const std::uint32_t token = item / perRow, piece = item % perRow;
    MSCCLPP_NO_UNROLL
    for (std::uint32_t chunk = piece * chunks; chunk < (piece + 1) * chunks; ++chunk) {
      receiveChunk(call, token, chunk, rows, own, [&](const auto& receiveFirst) {
        const bool isFirst = chunk == piece * chunks;
        if (isFirst) awaitPiece(call, rows, piece);
        receiveFirst();
        if (isFirst) next = nextRows.ownEntries(call);
      });
      if (call.session.warp().any(hasFailed(call.wait))) return;
    }
    item = nextItem;
    nextItem = followingItem;
    rows = nextRows;
    nextRows = followingRows;
    own = next;
  }
}

// ---- as packets ----

/// Receives the items first, first + stride, ... Called by all lanes of a warp.
template <class Call>
MSCCLPP_INLINE void receiveChunks(Call& call, std::uint32_t first, std::uint32_t stride) {
  const auto& args = call.args;
  const auto tokens = static_cast<std::uint32_t>(args.count);
  const std::uint32_t chunks = call.chunksOfPacketItem(tokens, stride);
  const std::uint32_t perRow = args.scratch.steps() * Call::chunksPerStep / chunks;
  MSCCLPP_NO_UNROLL
  for (std::uint32_t item = first; item < tokens * perRow; item += stride) {
    const std::uint32_t token = item / perRow, firstChunk = item % perRow * chunks;
    const auto rows = Rows<Call>::load(call, token);
    MSCCLPP_NO_UNROLL
    for (std::uint32_t chunk = firstChunk; chunk < firstChunk + chunks; ++chunk) {
      receiveChunk(call, token, chunk, rows, {}, [](const auto& receiveFirst) { receiveFirst(); });
      if (call.session.warp().any(hasFailed(call.wait))) return;
    }
  }
}

/// Receives the parts of this rank's tokens. Called by all lanes of a warp that has a share.
template <class Call>
MSCCLPP_INLINE void receive(Call& call, const typename Call::Session::Share& share) {
  if constexpr (!Call::Transport::hasRowFlags) {
    receiveChunks(call, share.first(), share.stride());
  } else if (!call.session.failed()) {
    receivePieces(call, call.queueOf(share, &Call::Words::receiving));
  }
}

}  // namespace mscclpp::moe::parts
