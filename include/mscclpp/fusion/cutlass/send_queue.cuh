// A queue of tiles that blocks which compute nothing send to other ranks, by bulk copies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/arch/fence.hpp"
#include "mscclpp/arch/shared_word.hpp"
#include "mscclpp/arch/sleep.hpp"
#include "mscclpp/basic/bulk.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/cutlass/exchange_tiles.hpp"

namespace mscclpp::detail {

/// A tile on its way to other ranks.
struct OutgoingTile {
  TileCoordinate at = {-1, -1};  ///< in the problem; negative: none
  std::uint32_t block = 0;       ///< of rows, from which its destinations follow
  std::size_t offset = 0;        ///< in the windows of its destinations
  std::size_t flag = 0;          ///< the same, of the first word that announces it

  MSCCLPP_DEVICE bool exists() const { return at.row >= 0; }
};

/// The chunks in which a tile is copied: as many whole rows as 16 KB hold, the same number in each.
template <int tileRows, int tileRowBytes>
struct TileChunks {
 private:
  static constexpr int mostRows() {
    constexpr int mostBytes = 16384;
    int most = tileRows;
    while (tileRows % most != 0 || most * tileRowBytes > mostBytes) --most;
    return most;
  }

 public:
  static constexpr int rows = mostRows();
  static constexpr int bytes = rows * tileRowBytes;
  static constexpr int count = tileRows / rows;
  static_assert(bytes % 128 == 0, "TMA loads a chunk to a multiple of 128 bytes");
};

/// What each of the three warps of a SendQueue does.
enum class SendStep {
  Find,     ///< finds tiles that are stored, up to 32 at a time
  Copy,     ///< copies them
  Announce  ///< tells their destinations when they have arrived
};

/// A queue of tiles in shared memory, in which three warps do one step each for all tiles. A multiprocessor can send a
/// tile of 64 KB in 1.4 us, but some of the fences and round trips to memory that a tile needs take longer than that,
/// each: a proxy fence beside bulk copies 2.4 us, a system-wide fence 2.7 us. So the steps overlap, and where tiles
/// wait for a fence it is one for all of them.
///
/// The ring of chunks is not that of a BulkCopier, which has a proxy fence in every call, and whose sources lie in one
/// piece.
///
/// Each function is called by all lanes of the warp of its step. No wait has a time limit: what they wait for are warps
/// of this kernel, all of whose waits for other ranks have one.
template <class Chunks, int chunkCount>
class SendQueue {
  using Warp = gpu::WarpTile<>;
  static constexpr std::uint32_t width = Warp::width;
  static constexpr std::uint32_t depth = 2 * width;
  static constexpr int loadsAhead = chunkCount / 2;  ///< chunks that are being loaded while others are stored
  static constexpr int mostUnderWay = 4;  ///< chunks whose stores may not have arrived when tiles are counted

 public:
  static constexpr int steps = 3;
  static constexpr unsigned pauseNanoseconds = 64;  ///< between two looks at a word

  /// Called by one thread, before a sync of the block.
  MSCCLPP_DEVICE __forceinline__ void init() {
    for (BulkBarrier& barrier : loaded_) barrier.relaxedInit();
    arch::mbarrierInitFence();
    stored_ = arrived_ = announced_ = 0;
  }

  /// Find: adds the tiles of `lanes`, one each, as those from number `first` on, which may not be copied yet. Waits for
  /// room for them. Returns the number behind the last one.
  MSCCLPP_DEVICE __forceinline__ std::uint32_t add(std::uint32_t first, std::uint32_t lanes, const OutgoingTile& tile) {
    const auto rank = static_cast<std::uint32_t>(Warp().rank());
    const std::uint32_t end = first + static_cast<std::uint32_t>(arch::countBits(lanes));
    while (read(announced_) + depth < end) arch::sleepFor(pauseNanoseconds);
    if ((lanes >> rank & 1u) != 0) {
      tiles_[(first + static_cast<std::uint32_t>(arch::countBits(lanes & ((1u << rank) - 1)))) % depth] = tile;
    }
    return end;
  }
  /// Find: the tiles before number `end` are stored, as all lanes together have acquired.
  MSCCLPP_DEVICE __forceinline__ void release(std::uint32_t end) {
    arch::bulkFenceGlobal();  // bulk copies, of another thread, read what has been acquired
    tell(stored_, end);
  }
  /// Find: there are no more than `end` tiles.
  MSCCLPP_DEVICE __forceinline__ void close(std::uint32_t end) { release(add(end, 1, OutgoingTile{})); }

  /// Copy: until there are no more tiles. loadChunk(tile, chunk, to, barrier) starts bulk loads of a chunk of a tile,
  /// Chunks::bytes, to shared memory; forEachDestination(tile, f) calls f(std::byte*) with the window of each
  /// destination. Both are called by one thread.
  template <class LoadChunk, class ForEachDestination>
  MSCCLPP_DEVICE __forceinline__ void copyAll(const LoadChunk& loadChunk,
                                              const ForEachDestination& forEachDestination) {
    // The last tiles, which have chunks that are being loaded or are under way.
    constexpr std::uint32_t uncounted = (mostUnderWay + loadsAhead + Chunks::count - 1) / Chunks::count;
    std::uint32_t stored = 0, copied = 0, arrived = 0;
    Ring ring;
    while (true) {
      if (copied == stored) stored = read(stored_);
      if (copied == stored) {
        settle(ring, forEachDestination);
        tell(arrived_, arrived = copied);
        while ((stored = read(stored_)) == copied) arch::sleepFor(pauseNanoseconds);
      }
      const OutgoingTile& tile = tiles_[copied % depth];
      if (!tile.exists()) break;
      MSCCLPP_NO_UNROLL
      for (int chunk = 0; chunk < Chunks::count; ++chunk) {
        load(ring, tile, chunk, copied, loadChunk);
        if (++ring.loading > loadsAhead) storeOldest(ring, forEachDestination);
      }
      ++copied;
      if (Warp().rank() == 0) arch::bulkWait<mostUnderWay>();
      // Not below what settle() has told.
      if (copied > arrived + uncounted) tell(arrived_, arrived = copied - uncounted);
    }
    settle(ring, forEachDestination);
    tell(arrived_, copied + 1);
  }

  /// Announce: until there are no more tiles. announce(tile) stores the flags of a tile, relaxed; called by one thread.
  template <class Announce>
  MSCCLPP_DEVICE __forceinline__ void announceAll(const Announce& announce) {
    const Warp warp;
    for (std::uint32_t count = 0;;) {
      std::uint32_t arrived = 0;
      while ((arrived = read(arrived_)) == count) arch::sleepFor(pauseNanoseconds);
      // One fence for all of them.
      arch::fence<arch::Scope::System>();
      bool isEnd = false;
      for (std::uint32_t i = count + static_cast<std::uint32_t>(warp.rank()); i < arrived; i += width) {
        const OutgoingTile& tile = tiles_[i % depth];
        if (tile.exists()) {
          announce(tile);
        } else {
          isEnd = true;
        }
      }
      if (warp.any(isEnd)) return;
      tell(announced_, count = arrived);
    }
  }

 private:
  /// What another warp has told, the same in all lanes, each of which may read what that warp wrote before.
  static MSCCLPP_DEVICE __forceinline__ std::uint32_t read(const std::uint32_t& word) {
    const Warp warp;
    const std::uint32_t value = warp.shuffle(arch::loadSharedAcquire(&word), 0);
    warp.sync();
    return value;
  }
  /// Tells another warp, after all that the lanes have read and written before.
  static MSCCLPP_DEVICE __forceinline__ void tell(std::uint32_t& word, std::uint32_t value) {
    const Warp warp;
    warp.sync();
    if (warp.rank() == 0) arch::storeSharedRelease(&word, value);
  }
  /// Where Copy is.
  struct Ring {
    int load = 0, store = 0, loading = 0;
    std::uint32_t phase = 0;
  };
  struct Chunk {
    std::uint32_t tile;
    std::uint32_t byte;  ///< of the tile
  };

  template <class LoadChunk>
  MSCCLPP_DEVICE __forceinline__ void load(Ring& ring, const OutgoingTile& tile, int chunk, std::uint32_t number,
                                           const LoadChunk& loadChunk) {
    const int slot = ring.load;
    if (Warp().rank() == 0) {
      bulkStoreWaitSource<chunkCount - loadsAhead - 1>();
      chunks_[slot] = {number, static_cast<std::uint32_t>(chunk * Chunks::bytes)};
      loaded_[slot].arriveAndExpect(Chunks::bytes);
      loadChunk(tile, chunk, data_[slot], loaded_[slot]);
    }
    if (++ring.load == chunkCount) ring.load = 0;
  }
  template <class ForEachDestination>
  MSCCLPP_DEVICE __forceinline__ void storeOldest(Ring& ring, const ForEachDestination& forEachDestination) {
    const int slot = ring.store;
    if (Warp().rank() == 0) {
      while (!loaded_[slot].poll(ring.phase)) {
      }
      const Chunk chunk = chunks_[slot];
      const OutgoingTile& tile = tiles_[chunk.tile % depth];
      const std::size_t offset = tile.offset + chunk.byte;
      forEachDestination(tile, [&](std::byte* window) { bulkStore(window + offset, data_[slot], Chunks::bytes); });
      bulkStoreCommit();
    }
    if (++ring.store == chunkCount) {
      ring.store = 0;
      ring.phase ^= 1;
    }
    --ring.loading;
  }
  /// Until all that has been loaded has arrived.
  template <class ForEachDestination>
  MSCCLPP_DEVICE __forceinline__ void settle(Ring& ring, const ForEachDestination& forEachDestination) {
    while (ring.loading > 0) storeOldest(ring, forEachDestination);
    if (Warp().rank() == 0) bulkStoreWait();
  }

  alignas(128) std::byte data_[chunkCount][Chunks::bytes];
  OutgoingTile tiles_[depth];
  BulkBarrier loaded_[chunkCount];
  Chunk chunks_[chunkCount];
  // Tiles since the kernel began, which only become more: what each step has told the next one, and the last the first.
  std::uint32_t stored_, arrived_, announced_;
};

}  // namespace mscclpp::detail
