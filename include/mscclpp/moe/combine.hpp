// Combine: the weighted sum of the experts' results of each token, back on the token's rank.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/piece_publisher.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/expert_rows.hpp"
#include "mscclpp/moe/expert_sums.hpp"
#include "mscclpp/moe/item_queue.hpp"
#include "mscclpp/moe/row_link.hpp"
#include "mscclpp/moe/row_session.hpp"
#include "mscclpp/moe/row_transport.hpp"

namespace mscclpp::moe {

/// The arguments of a Combine. `count` is the number of this rank's tokens, as in the dispatch. If the handle's memory
/// has not been written by a dispatch of so many tokens with the same Handle::identity, which has received its rows,
/// the call fails (outcome OtherHandle).
template <int Ranks, class Transport>
struct CombineArgs : RowArgs<Ranks, Transport> {
  Dimensions dimensions;
  Handle handle;          ///< of the dispatch
  EpochWords dispatches;  ///< of the dispatch: after a failed one the handle is unfit, and combine does nothing
  Phase phase;
  /// Over a transport with row flags, in a call that is not split: so many blocks send and do nothing else, and the
  /// others receive. 0, or not less than all blocks: each does both.
  int sendingBlocks;
};

/// The results of this rank's experts: a source of Combine. Another type with this function may take its place.
template <class T>
struct ExpertResults {
  const T* rows;           ///< [capacity][packs * packSize<T>], 16-byte aligned; rows as the dispatch placed them
  std::uint32_t rowPacks;  ///< packs of a row

  /// Pack `index` of a row. One thread; it may be called several times.
  MSCCLPP_INLINE Pack<T> operator()(std::uint32_t row, std::uint32_t index) const {
    return fromWord<T>(arch::loadWide(reinterpret_cast<const std::byte*>(rows) +
                                      (std::size_t{row} * rowPacks + index) * sizeof(Word128)));
  }
};

/// Where the tokens' results are stored: a sink of Combine.
template <class T>
struct TokenRows {
  T* rows;                 ///< [tokens][packs * packSize<T>], 16-byte aligned
  std::uint32_t rowPacks;  ///< packs of a row

  MSCCLPP_INLINE void operator()(std::uint32_t token, std::uint32_t index, const Pack<T>& pack) const {
    arch::storeWide(reinterpret_cast<std::byte*>(rows) + (std::size_t{token} * rowPacks + index) * sizeof(Word128),
                    toWord<T>(pack));
  }
};

/// Each token's sum, over its choices, of weight * result of the expert, as elements T (bf16, f16). The rank of the
/// experts adds its part in fp32, in the order of the token's choices, and rounds it to T, in which it travels once;
/// the token's rank adds the parts in fp32, in rank order from 0, and rounds the sum to T. So the result is bitwise the
/// same in every run, and its error is at most that of one rounding to T for each rank's part and one of the sum,
/// plus the rounding of fp32. A token without choices gets zeros.
///
/// run() is called by every thread of every block of `grid`, on every rank, as Dispatch::run(), with the handle of the
/// dispatch; in between, the experts' results are computed. They are read with Phase::Send and, over a StoreTransport,
/// with Phase::Receive too. source(row, pack) gives a pack of an expert's result, sink(token, pack, values) gets one of
/// a token's, once each.
template <class T, class RowTransport, int Ranks = 0>
struct Combine {
  static_assert(sizeof(T) == 2, "results are bf16 or f16");
  using Element = T;
  using Transport = RowTransport;
  using Scratch = RowSlots<Transport>;
  using Args = CombineArgs<Ranks, Transport>;
  /// With flags a thread needs 168 registers, for what it sums and for loads that are in flight meanwhile.
  static constexpr int maxBlockThreads = Transport::hasRowFlags ? 384 : 512;

  /// The scratch for rows of `rowPacks` packs.
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(const Dimensions& dimensions, std::uint32_t rowPacks) {
    Scratch scratch{.maxRows = dimensions.maxTokens,
                    .rowPacks = rowPacks,
                    .extraPacks = 0,
                    .countWords = 0,
                    .flagsPerRow = 1,
                    .ranks = dimensions.ranks};
    // Through a port each piece would be two requests to the proxy.
    if constexpr (!Transport::usesPorts) scratch.flagsPerRow = scratch.steps();
    return scratch;
  }
  /// Shared memory of a block, where a grid has it.
  static MSCCLPP_HOST_DEVICE std::size_t sharedBytes(const Args& /*args*/, LaunchShape /*shape*/) {
    return usesSharedMemory ? sizeof(BlockWords) : 0;
  }
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return shape.blocks >= 1 && shape.blocks <= maxBlocks && args.dimensions.isValid() && args.scratch.isValid() &&
           args.dimensions.ranks == args.team.size() && args.count <= args.dimensions.maxTokens &&
           args.sendingBlocks >= 0;
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    static_assert(Grid<GridType>, "grid must be a Grid: gpu::Grid() in a kernel, cpu::SerialGrid() on a CPU thread");
    if constexpr (checked) {
      if (!checkArguments<Combine>(grid, args)) return false;
    }
    auto wait = args.wait;
    using ThisCall = Call<GridType, Source, Sink>;
    typename ThisCall::Session session(grid, args, wait);
    const typename ThisCall::Experts experts(session.warp(), args.dimensions, args.handle, args.scratch.rowPacks,
                                             source);
    return ThisCall{grid, args, experts, sink, session, wait}.run();
  }

 private:
  static constexpr bool usesSharedMemory = Transport::hasRowFlags && !Transport::usesPorts;
  /// Of a block, in shared memory, with flags.
  struct BlockWords {
    std::uint32_t sending, receiving;  ///< items that have been taken
    PublisherWords publisher;
  };

  template <class GridType, class Source, class Sink>
  struct Call {
    using Session = RowSession<Ranks, Scratch, GridType, BoundedWait>;
    using Warp = typename Session::Warp;
    static constexpr int width = Session::width;
    /// Whether this rank's own parts are computed as they are added, instead of passing through slots.
    static constexpr bool addsOwnPart = Transport::hasRowFlags;
    /// A warp sums a chunk at once. With flags that is a step, with the loads of two experts' results and of one other
    /// rank's part in flight together: wide chunks take fewer instructions. As packets it is half a step, with those of
    /// four experts: few tokens are the work of more warps then, and the code is shorter.
    static constexpr int chunksPerStep = !Transport::hasRowFlags && Session::packsPerLane > 1 ? 2 : 1;
    static constexpr int n = Session::packsPerLane / chunksPerStep;
    using Experts = ExpertSums<T, Warp, n, Transport::hasRowFlags ? 2 : 4, Source>;
    using Sums = typename Experts::Sums;
    using Entries = typename Experts::Entries;

    const GridType& grid;
    const Args& args;
    const Experts& experts;
    const Sink& sink;
    Session& session;
    BoundedWait& wait;

    MSCCLPP_INLINE bool run() {
      const std::uint64_t stamp = *args.handle.stamp;
      if (session.hasStopped() || args.dispatches.hasStopped(EpochWords::stopped - 1)) return false;
      const bool sends = args.phase != Phase::Receive;
      const bool receives = args.phase != Phase::Send;
      const auto end = [&] {
        if (!receives) {
          if constexpr (sharesMemory) grid.block().sync();  // the publisher has read what others may write now
          return session.suspend();
        }
        return session.finish([&](int from) { return rowsFrom(from); });
      };
      if (stamp != args.handle.stampOf(args.count)) {
        if (grid.block().rank() == 0) failForHandle(stamp);
        return end();
      }
      if (sends) session.enter();
      if constexpr (Transport::hasRowFlags) {
        clearBlockWords();
        if (!session.awaitEntries()) return end();
      }
      const auto share = session.share(args.phase, grid.warpCount(), args.sendingBlocks);
      if (share.sends) send(share);
      if constexpr (!Transport::hasRowFlags) {
        if (receives && !session.awaitEntries()) return end();
      }
      if (share.receives) receive(share);
      return end();
    }

    MSCCLPP_INLINE void failForHandle(std::uint64_t stamp) {
      const WaitSite site{WaitOperation::Call, args.team.rank(), -1, static_cast<std::uint32_t>(grid.blockIndex()),
                          args.handle.stampOf(args.count)};
      wait.fail(site, WaitOutcome::OtherHandle, stamp);
    }
    MSCCLPP_INLINE std::uint32_t rowsFrom(int from) const {
      std::uint32_t rows = 0;
      for (std::uint32_t token = 0; token < args.count; ++token) {
        rows += args.handle.indexAt(args.dimensions, token, from) >= 0 ? 1 : 0;
      }
      return rows;
    }
    /// An item is what a warp sends or receives at once. With flags it is a piece of a row: small pieces are complete
    /// while the caches still have them, and a few rows are the work of many warps. A chunk is a step then.
    MSCCLPP_INLINE std::uint32_t itemsPerRow() const { return args.scratch.flagsPerRow; }
    MSCCLPP_INLINE std::uint32_t chunksPerItem() const { return args.scratch.steps() / itemsPerRow(); }
    /// As packets an item is a chunk, or a step if there are more chunks than warps. Returns the chunks of an item,
    /// where `warps` warps share `rows` rows.
    MSCCLPP_INLINE std::uint32_t chunksOfPacketItem(std::uint32_t rows, std::uint32_t warps) const {
      return rows * args.scratch.steps() * chunksPerStep > warps ? chunksPerStep : 1;
    }

    // ---- shared memory, where a grid has it ----

    static constexpr bool sharesMemory = SharedMemoryGrid<GridType> && usesSharedMemory;
    MSCCLPP_INLINE BlockWords* blockWords() const {
      if constexpr (sharesMemory) return reinterpret_cast<BlockWords*>(grid.sharedMemory());
      return nullptr;
    }
    /// Called by all threads, before a sync of the block.
    MSCCLPP_INLINE void clearBlockWords() const {
      if constexpr (sharesMemory) {
        if (grid.block().rank() == 0) blockWords()->sending = blockWords()->receiving = 0;
        blockWords()->publisher.clear(grid.block());
      }
    }
    /// The items of a share, which the warps of a block take from a counter, where they share memory.
    MSCCLPP_INLINE ItemQueue queueOf(const typename Session::Share& share, std::uint32_t BlockWords::*counter) const {
      if constexpr (sharesMemory) {
        return {&(blockWords()->*counter), static_cast<std::uint32_t>(share.block),
                static_cast<std::uint32_t>(share.blocks)};
      }
      return {nullptr, share.first(), share.stride()};
    }

    // ---- sending ----

    MSCCLPP_INLINE std::uint32_t destinations() const {
      return static_cast<std::uint32_t>(args.team.size() - 1);  // this rank is the last
    }
    /// The most pieces for a rank, those to this one not counted.
    MSCCLPP_INLINE std::uint32_t mostPieces() const {
      std::uint32_t most = 0;
      MSCCLPP_NO_UNROLL
      for (std::uint32_t i = 0; i < destinations(); ++i) {
        const std::uint32_t rows = args.handle.received[session.rankInOrder(static_cast<int>(i))];
        most = rows > most ? rows : most;
      }
      return most * itemsPerRow();
    }
    /// Takes the next item to send, or none if none is left. In the queue pieces for the ranks take turns, since every
    /// rank waits for the rows of its first tokens first, `turns` for each. Ranks to which less is sent leave gaps.
    /// Called by all lanes.
    MSCCLPP_INLINE RowPiece take(ItemQueue& queue, std::uint32_t turns) const {
      const std::uint32_t perRow = itemsPerRow();
      MSCCLPP_NO_UNROLL
      while (true) {
        const std::uint32_t item = queue.next(session.warp());
        if (item >= turns * destinations()) return {};
        const std::uint32_t turn = item / destinations();
        // Another first rank in each turn, in no regular order: else the gaps would be those of some blocks, if their
        // number is a multiple of the ranks.
        const std::uint32_t shift = turn * 2654435769u >> 16;
        const int to = session.rankInOrder(static_cast<int>((item + shift) % destinations()));
        if (turn < args.handle.received[to] * perRow) return {to, turn / perRow, turn % perRow};
      }
    }

    MSCCLPP_INLINE void send(const typename Session::Share& share) {
      if constexpr (!Transport::hasRowFlags) {
        sendChunks(share.first(), share.stride());
      } else {
        PublisherWords* words = nullptr;
        if constexpr (sharesMemory) words = &blockWords()->publisher;
        PiecePublisher publisher(session, words, share.warp, share.warps);
        if (publisher.isPublisher()) return publisher.run();
        sendPieces(queueOf(share, &BlockWords::sending), publisher);
      }
    }
    /// Sends items and publishes them. The entries of the next item are loaded before the results of one.
    MSCCLPP_INLINE void sendPieces(ItemQueue queue, PiecePublisher<Session>& publisher) {
      const std::uint32_t chunks = chunksPerItem();
      const std::uint32_t turns = session.failed() ? 0 : mostPieces();  // after waits
      RowPiece item = take(queue, turns);
      Entries entries = experts.entriesOf(item.to, item.row);
      MSCCLPP_NO_UNROLL
      while (item.to >= 0) {
        const RowPiece after = take(queue, turns);
        const Entries following = experts.entriesOf(after.to, after.row);
        MSCCLPP_NO_UNROLL
        for (std::uint32_t chunk = item.piece * chunks; chunk < (item.piece + 1) * chunks; ++chunk) {
          sendChunk(item.to, item.row, chunk, experts.sumOf(entries, chunk, [] {}));
        }
        publisher.publish(item);
        item = after;
        entries = following;
      }
      publisher.end();
    }

    /// As packets, which leave before others have entered.
    MSCCLPP_INLINE void sendChunks(std::uint32_t first, std::uint32_t stride) {
      std::uint32_t all = 0;
      MSCCLPP_NO_UNROLL
      for (int rank = 0; rank < args.team.size(); ++rank) all += args.handle.received[rank];
      const std::uint32_t chunks = chunksOfPacketItem(all, stride);
      const std::uint32_t perRow = args.scratch.steps() * chunksPerStep / chunks;
      std::uint32_t item = first;
      MSCCLPP_NO_UNROLL
      for (int i = 0; i < args.team.size(); ++i) {
        const int to = session.rankInOrder(i);
        const std::uint32_t items = args.handle.received[to] * perRow;
        MSCCLPP_NO_UNROLL
        for (; item < items; item += stride) {
          const std::uint32_t row = item / perRow, firstChunk = item % perRow * chunks;
          const Entries entries = experts.entriesOf(to, row);
          MSCCLPP_NO_UNROLL
          for (std::uint32_t chunk = firstChunk; chunk < firstChunk + chunks; ++chunk) {
            sendChunk(to, row, chunk, experts.sumOf(entries, chunk, [] {}));
          }
        }
        item -= items;
      }
    }
    MSCCLPP_INLINE void sendChunk(int to, std::uint32_t row, std::uint32_t chunk, const Sums& sums) const {
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        const std::uint32_t pack = experts.packOf(chunk, i);
        if (pack < args.scratch.rowPacks) {
          session.send(to, args.scratch.dataSlot(row, pack), toWord<T>(sums.rounded(i)));
        }
      }
    }

    // ---- receiving ----

    /// The rows by which the ranks contribute to a token: lane l has those of ranks l, l + width, ...
    static constexpr int heldRanks = ((Ranks > 0 ? Ranks : maxTeamSize) + width - 1) / width;
    struct Rows {
      std::int32_t of[heldRanks];  ///< -1: none

      MSCCLPP_INLINE std::int32_t at(int q) const {
        std::int32_t row = of[0];
        MSCCLPP_UNROLL
        for (int other = 1; other < heldRanks; ++other) row = q == other ? of[other] : row;
        return row;
      }
    };
    /// Of a token, by one load of the warp; none if there is no such token. Called by all lanes.
    MSCCLPP_INLINE Rows rowsOf(std::uint32_t token) const {
      Rows rows;
      MSCCLPP_UNROLL
      for (int q = 0; q < heldRanks; ++q) {
        const int rank = q * width + session.warp().rank();
        const bool isPresent = token < static_cast<std::uint32_t>(args.count) && rank < args.team.size();
        rows.of[q] = isPresent ? args.handle.indexAt(args.dimensions, token, rank) : -1;
      }
      return rows;
    }
    /// The row of a rank. Called by all lanes.
    MSCCLPP_INLINE std::uint32_t rowOf(const Rows& rows, int rank) const {
      return session.warp().shuffle(static_cast<std::uint32_t>(rows.at(rank / width)), rank % width);
    }
    /// The ranks that contribute, a bit for each. Called by all lanes.
    MSCCLPP_INLINE std::uint64_t contributors(const Rows& rows) const {
      std::uint64_t ranks = 0;
      MSCCLPP_UNROLL
      for (int q = 0; q < heldRanks; ++q) {
        ranks |= std::uint64_t{session.warp().ballot(rows.of[q] >= 0)} << (q * width);
      }
      return ranks;
    }
    MSCCLPP_INLINE Entries ownEntries(const Rows& rows) const {
      const std::uint32_t row = rowOf(rows, args.team.rank());
      return experts.entriesOf(static_cast<std::int32_t>(row) >= 0 ? args.team.rank() : -1, row);
    }

    MSCCLPP_INLINE void receive(const typename Session::Share& share) {
      if constexpr (!Transport::hasRowFlags) {
        receiveChunks(share.first(), share.stride());
      } else if (!session.failed()) {
        receivePieces(queueOf(share, &BlockWords::receiving));
      }
    }
    /// With flags. The rows of a token are loaded two items before it is received, and what this rank's own
    /// contribution needs one item before.
    MSCCLPP_INLINE void receivePieces(ItemQueue queue) {
      const std::uint32_t perRow = itemsPerRow(), chunks = chunksPerItem();
      const auto items = static_cast<std::uint32_t>(args.count) * perRow;
      std::uint32_t item = queue.next(session.warp()), nextItem = queue.next(session.warp());
      Rows rows = rowsOf(item / perRow), nextRows = rowsOf(nextItem / perRow);
      Entries own = ownEntries(rows);
      MSCCLPP_NO_UNROLL
      while (item < items) {
        const std::uint32_t followingItem = queue.next(session.warp());
        const Rows followingRows = rowsOf(followingItem / perRow);
        Entries next = {};
        const std::uint32_t token = item / perRow, piece = item % perRow;
        MSCCLPP_NO_UNROLL
        for (std::uint32_t chunk = piece * chunks; chunk < (piece + 1) * chunks; ++chunk) {
          receiveChunk(token, chunk, rows, own, [&](const auto& receiveFirst) {
            const bool isFirst = chunk == piece * chunks;
            if (isFirst) awaitPiece(rows, piece);
            receiveFirst();
            if (isFirst) next = ownEntries(nextRows);
          });
          if (session.warp().any(hasFailed(wait))) return;
        }
        item = nextItem;
        nextItem = followingItem;
        rows = nextRows;
        nextRows = followingRows;
        own = next;
      }
    }
    /// As packets.
    MSCCLPP_INLINE void receiveChunks(std::uint32_t first, std::uint32_t stride) {
      const auto tokens = static_cast<std::uint32_t>(args.count);
      const std::uint32_t chunks = chunksOfPacketItem(tokens, stride);
      const std::uint32_t perRow = args.scratch.steps() * chunksPerStep / chunks;
      MSCCLPP_NO_UNROLL
      for (std::uint32_t item = first; item < tokens * perRow; item += stride) {
        const std::uint32_t token = item / perRow, firstChunk = item % perRow * chunks;
        const Rows rows = rowsOf(token);
        MSCCLPP_NO_UNROLL
        for (std::uint32_t chunk = firstChunk; chunk < firstChunk + chunks; ++chunk) {
          receiveChunk(token, chunk, rows, {}, [](const auto& receiveFirst) { receiveFirst(); });
          if (session.warp().any(hasFailed(wait))) return;
        }
      }
    }
    /// Waits for a piece of a token's row from every other rank that sends one: a lane for each. Called by all lanes.
    MSCCLPP_INLINE void awaitPiece(const Rows& rows, std::uint32_t piece) {
      MSCCLPP_NO_UNROLL
      for (int q = 0; q * width < args.team.size(); ++q) {
        const int from = q * width + session.warp().rank();
        const std::int32_t row = rows.at(q);
        if (row >= 0 && from != args.team.rank()) session.awaitAlone(from, static_cast<std::uint32_t>(row), piece);
      }
      session.warp().sync();
    }

    /// Parts of a chunk that come from other ranks; their loads are in flight together.
    struct Parts {
      static constexpr int count = Transport::hasRowFlags ? 1 : 2;
      int from[count];  ///< in the order of the ranks; -1: none
      Word128 words[count * n];
      int next;  ///< the first rank after them
    };
    /// Receives the parts of the first ranks of `ranks` from parts.next on. Called by all lanes.
    MSCCLPP_INLINE void receiveParts(std::uint64_t ranks, const Rows& rows, std::uint32_t chunk, Parts& parts) {
      int from[Parts::count * n];
      std::uint32_t slots[Parts::count * n];
      bool isPresent[Parts::count * n];
      MSCCLPP_UNROLL
      for (int b = 0; b < Parts::count; ++b) {
        MSCCLPP_NO_UNROLL
        while (parts.next < args.team.size() && (ranks >> parts.next & 1) == 0) ++parts.next;
        const bool exists = parts.next < args.team.size();
        const std::uint32_t row = exists ? rowOf(rows, parts.next) : 0;
        parts.from[b] = exists ? parts.next : -1;
        parts.next += exists ? 1 : 0;
        MSCCLPP_UNROLL
        for (int i = 0; i < n; ++i) {
          const std::uint32_t pack = experts.packOf(chunk, i);
          from[b * n + i] = exists ? parts.from[b] : 0;
          isPresent[b * n + i] = exists && pack < args.scratch.rowPacks;
          slots[b * n + i] = args.scratch.dataSlot(row, pack);
        }
      }
      session.template receive<Parts::count * n>(from, slots, isPresent, parts.words);
    }

    /// Adds the parts of a chunk in the order of the ranks. meanwhile(receiveFirst) is called while the results of this
    /// rank's experts are loaded; it calls receiveFirst() to receive what comes from others. Called by all lanes.
    template <class Meanwhile>
    MSCCLPP_INLINE void receiveChunk(std::uint32_t token, std::uint32_t chunk, const Rows& rows, const Entries& own,
                                     const Meanwhile& meanwhile) {
      const int self = args.team.rank();
      std::uint64_t ranks = contributors(rows);
      bool hasOwn = false;
      Parts parts = {};
      Word128 ownWords[n];
      if constexpr (addsOwnPart) {
        hasOwn = (ranks >> self & 1) != 0;
        ranks &= ~(std::uint64_t{1} << self);
        const Sums sums =
            experts.sumOf(own, chunk, [&] { meanwhile([&] { receiveParts(ranks, rows, chunk, parts); }); });
        MSCCLPP_UNROLL
        for (int i = 0; i < n; ++i) ownWords[i] = toWord<T>(sums.rounded(i));  // as if it had travelled
      } else {
        meanwhile([&] { receiveParts(ranks, rows, chunk, parts); });
      }
      Sums sums = {};
      const auto addOwn = [&] {
        MSCCLPP_UNROLL
        for (int i = 0; i < n; ++i) sums.add(i, ownWords[i]);
        hasOwn = false;
      };
      MSCCLPP_NO_UNROLL
      while (parts.from[0] >= 0) {
        const Parts current = parts;
        if constexpr (Transport::hasRowFlags) receiveParts(ranks, rows, chunk, parts);
        MSCCLPP_UNROLL
        for (int b = 0; b < Parts::count; ++b) {
          if (current.from[b] < 0) continue;
          if (hasOwn && current.from[b] > self) addOwn();
          MSCCLPP_UNROLL
          for (int i = 0; i < n; ++i) sums.add(i, current.words[b * n + i]);
        }
        if constexpr (!Transport::hasRowFlags) receiveParts(ranks, rows, chunk, parts);
      }
      if (hasOwn) addOwn();
      if (hasFailed(wait)) return;
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        const std::uint32_t pack = experts.packOf(chunk, i);
        if (pack < args.scratch.rowPacks) sink(token, pack, sums.rounded(i));
      }
    }
  };
};

}  // namespace mscclpp::moe
