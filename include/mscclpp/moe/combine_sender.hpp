// What a rank sends in a combine: its experts' parts of the tokens' results, to the ranks of the tokens.
#pragma once

#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/collective/piece_publisher.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/item_queue.hpp"

namespace mscclpp::moe::parts {

/// Sends a chunk of the part in a row. Called by all lanes.
template <class Call>
MSCCLPP_INLINE void sendChunk(const Call& call, int to, std::uint32_t row, std::uint32_t chunk,
                              const typename Call::Sums& sums) {
  const auto& scratch = call.args.scratch;
  MSCCLPP_UNROLL
  for (int i = 0; i < Call::n; ++i) {
    const std::uint32_t pack = call.experts.packOf(chunk, i);
    if (pack < scratch.rowPacks) {
      call.session.send(to, scratch.dataSlot(row, pack), toWord<typename Call::Element>(sums.rounded(i)));
    }
  }
}

// ---- with flags ----

/// The ranks to which pieces are sent: all but this one.
template <class Call>
MSCCLPP_INLINE std::uint32_t destinations(const Call& call) {
  return static_cast<std::uint32_t>(call.args.team.size() - 1);  // this rank is the last in order
}
/// The most pieces for a rank, those to this one not counted.
template <class Call>
MSCCLPP_INLINE std::uint32_t mostPieces(const Call& call) {
  std::uint32_t most = 0;
  MSCCLPP_NO_UNROLL
  for (std::uint32_t i = 0; i < destinations(call); ++i) {
    const std::uint32_t rows = call.args.handle.received[call.session.rankInOrder(static_cast<int>(i))];
    most = rows > most ? rows : most;
  }
  return most * call.itemsPerRow();
}
/// Takes the next item to send, or none if none is left. In the queue pieces for the ranks take turns, since every rank
/// waits for the rows of its first tokens first, `turns` for each. Ranks to which less is sent leave gaps. Called by
/// all lanes.
template <class Call>
MSCCLPP_INLINE RowPiece take(const Call& call, ItemQueue& queue, std::uint32_t turns) {
  const std::uint32_t perRow = call.itemsPerRow();
  MSCCLPP_NO_UNROLL
  while (true) {
    const std::uint32_t item = queue.next(call.session.warp());
    if (item >= turns * destinations(call)) return {};
    const std::uint32_t turn = item / destinations(call);
    // Another first rank in each turn, in no regular order: else the gaps would be those of some blocks, if their
    // number is a multiple of the ranks.
    const std::uint32_t shift = turn * 2654435769u >> 16;
    const int to = call.session.rankInOrder(static_cast<int>((item + shift) % destinations(call)));
    if (turn < call.args.handle.received[to] * perRow) return {to, turn / perRow, turn % perRow};
  }
}
/// Sends items and publishes them. The entries of the next item are loaded before the results of one. Called by all
/// lanes of a warp.
template <class Call>
MSCCLPP_INLINE void sendPieces(Call& call, ItemQueue queue, PiecePublisher<typename Call::Session>& publisher) {
  using Entries = typename Call::Entries;
  const std::uint32_t chunks = call.chunksPerItem();
  const std::uint32_t turns = call.session.failed() ? 0 : mostPieces(call);  // after waits
  RowPiece item = take(call, queue, turns);
  Entries entries = call.experts.entriesOf(item.to, item.row);
  MSCCLPP_NO_UNROLL
  while (item.to >= 0) {
    const RowPiece after = take(call, queue, turns);
    const Entries following = call.experts.entriesOf(after.to, after.row);
    MSCCLPP_NO_UNROLL
    for (std::uint32_t chunk = item.piece * chunks; chunk < (item.piece + 1) * chunks; ++chunk) {
      sendChunk(call, item.to, item.row, chunk, call.experts.sumOf(entries, chunk, [] {}));
    }
    publisher.publish(item);
    item = after;
    entries = following;
  }
  publisher.end();
}

// ---- as packets ----

/// Sends the items first, first + stride, ..., before others have entered the call. Called by all lanes of a warp.
template <class Call>
MSCCLPP_INLINE void sendChunks(Call& call, std::uint32_t first, std::uint32_t stride) {
  const auto& args = call.args;
  std::uint32_t all = 0;
  MSCCLPP_NO_UNROLL
  for (int rank = 0; rank < args.team.size(); ++rank) all += args.handle.received[rank];
  const std::uint32_t chunks = call.chunksOfPacketItem(all, stride);
  const std::uint32_t perRow = args.scratch.steps() * Call::chunksPerStep / chunks;
  std::uint32_t item = first;
  MSCCLPP_NO_UNROLL
  for (int i = 0; i < args.team.size(); ++i) {
    const int to = call.session.rankInOrder(i);
    const std::uint32_t items = args.handle.received[to] * perRow;
    MSCCLPP_NO_UNROLL
    for (; item < items; item += stride) {
      const std::uint32_t row = item / perRow, firstChunk = item % perRow * chunks;
      const typename Call::Entries entries = call.experts.entriesOf(to, row);
      MSCCLPP_NO_UNROLL
      for (std::uint32_t chunk = firstChunk; chunk < firstChunk + chunks; ++chunk) {
        sendChunk(call, to, row, chunk, call.experts.sumOf(entries, chunk, [] {}));
      }
    }
    item -= items;
  }
}

/// Sends this rank's parts, or publishes what other warps send. Called by all lanes of a warp that has a share.
template <class Call>
MSCCLPP_INLINE void send(Call& call, const typename Call::Session::Share& share) {
  if constexpr (!Call::Transport::hasRowFlags) {
    sendChunks(call, share.first(), share.stride());
  } else {
    PublisherWords* words = nullptr;
    if constexpr (Call::sharesMemory) words = &call.blockWords()->publisher;
    PiecePublisher publisher(call.session, words, share.warp, share.warps);
    if (publisher.isPublisher()) return publisher.run();
    sendPieces(call, call.queueOf(share, &Call::Words::sending), publisher);
  }
}

}  // namespace mscclpp::moe::parts
