// How a GEMM kernel with an all-gather inside sends a rank's rows: by a warp of each block that computes, or by blocks
// that only send.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/bulk.hpp"
#include "mscclpp/arch/fence.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/barrier_ids.hpp"
#include "mscclpp/basic/bulk.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/piece_publisher.hpp"
#include "mscclpp/collective/row_gather.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::detail {

/// Warps that send, one or more of each of some blocks, as a grid.
class SendingWarps : public gpu::WarpGrid {
 public:
  /// block, warp: of the calling warp among these.
  MSCCLPP_DEVICE __forceinline__ SendingWarps(int block, int blockCount, int warp, int warpCount)
      : WarpGrid(block, blockCount, 0, warpCount, BarrierIds{}), warp_(warp) {}
  MSCCLPP_DEVICE __forceinline__ int warpIndex() const { return warp_; }
  MSCCLPP_DEVICE __forceinline__ std::uint32_t size() const {
    return static_cast<std::uint32_t>(blockCount() * warpCount());
  }

 private:
  int warp_;
};

/// A rank's rows, and who is to get them: all columns of them. Scratch: a MatrixGather; partBytes: of a row in a part.
template <int Ranks, class Scratch, int partRows, int partBytes>
struct RowSender {
  using Args = CollectiveArgs<Ranks, Scratch>;

  const Args& args;
  SentRows rows;
  std::uint64_t epoch;
  std::uint32_t rowsTogether;  ///< rows of tiles that are computed at the same time

  /// Sends by the calling warps, beside others of their blocks. Each sends what it has for a peer in a few pieces, if
  /// rows are long enough: tiles can begin with the first ones, and each has a system-wide fence.
  MSCCLPP_DEVICE __forceinline__ void send(const SendingWarps& warps) const {
    constexpr std::uint32_t pieces = 4;
    const Scratch& scratch = args.scratch;
    const std::size_t parts =
        ceilDivide(scratch.slice, std::size_t{partRows}) * static_cast<std::size_t>(scratch.columnParts());
    auto wait = args.wait;
    NoTrace trace;
    RowGather gather(warps, args, epoch, wait, trace);
    const RowSendOrder order{rowsTogether,
                             static_cast<std::uint32_t>(ceilDivide(parts, std::size_t{warps.size()} * pieces))};
    if (gather.send(rows, order) && warps.warp().rank() == 0) count(warps.size());
    gather.leave();
  }

  /// The shared memory of a block of so many warps that only sends.
  template <int warps>
  struct Shared {
    static_assert(warps > 1 && warps - 1 <= PublisherWords::maxSenders);
    alignas(128) std::byte parts[warps - 1][partRows][partBytes];
    BulkBarrier loaded[warps - 1];
    PublisherWords announcer;
  };
  /// Sends by all warps of such a block, number `block` of blockCount ones. All but one copy parts through shared
  /// memory by bulk copies. That one announces them: a system-wide fence takes 3 us beside such copies, in which the
  /// others go on, and is one for a part of each warp.
  template <int warps>
  MSCCLPP_DEVICE __forceinline__ void sendByBlock(int block, int blockCount, Shared<warps>& shared) const {
    const gpu::Grid grid;
    const SendingWarps senders(block, blockCount, grid.warpIndex(), warps - 1);
    auto wait = args.wait;
    NoTrace trace;
    RowGather gather(senders, args, epoch, wait, trace);
    using Announced = Announcements<decltype(gather)>;
    const Announced announcements{gather};
    shared.announcer.clear(grid.block());
    if (grid.block().rank() == 0) {
      for (BulkBarrier& barrier : shared.loaded) barrier.relaxedInit();
      arch::mbarrierInitFence();
    }
    grid.block().sync();
    PiecePublisher<Announced> announcer(announcements, &shared.announcer, grid.warpIndex(), warps);
    bool hasSent = true;
    if (announcer.isPublisher()) {
      announcer.run();
    } else {
      std::uint32_t phase = 0;
      const BulkSteps<PiecePublisher<Announced>> steps{
          args.scratch, rows.pitch, shared.parts[grid.warpIndex()], shared.loaded[grid.warpIndex()], announcer, phase};
      hasSent = gather.sendBy(steps, rows, {rowsTogether, 1});
      announcer.end();
    }
    if (!grid.block().syncAny(!hasSent) && grid.block().rank() == 0) count(static_cast<std::uint32_t>(blockCount));
    gather.leave();
  }

 private:
  /// For a PiecePublisher: a piece is a part of a block of rows.
  template <class Gather>
  struct Announcements {
    static constexpr int width = gpu::WarpTile<>::width;
    const Gather& gather;

    MSCCLPP_DEVICE __forceinline__ gpu::WarpTile<> warp() const { return {}; }
    MSCCLPP_DEVICE __forceinline__ void publish(const RowPiece& piece) const {
      warp().sync();
      publishEach(warp().rank() == 0 ? piece : RowPiece{});
    }
    MSCCLPP_DEVICE __forceinline__ void publishEach(const RowPiece& piece) const {
      warp().sync();
      arch::fence<arch::Scope::System>();
      if (piece.to >= 0) gather.announce(piece.to, piece.row, static_cast<int>(piece.piece));
    }
  };
  /// The steps of RowGather::sendBy(): each lane copies a row of a part.
  template <class Announcer>
  struct BulkSteps {
    static_assert(partRows <= gpu::WarpTile<>::width);
    const Scratch& scratch;
    std::size_t pitch;
    std::byte (&part)[partRows][partBytes];
    BulkBarrier& loaded;
    Announcer& announcer;
    std::uint32_t& phase;

    MSCCLPP_DEVICE __forceinline__ void enter() const {
      arch::bulkFenceAll();  // bulk copies overwrite what others have read, and this block's shared memory
    }
    MSCCLPP_DEVICE __forceinline__ void copyRows(std::byte* to, const std::byte* from, std::size_t rows,
                                                 std::size_t size) const {
      const gpu::WarpTile<> warp;
      const auto bytes = static_cast<std::uint32_t>(size), count = static_cast<std::uint32_t>(rows);
      const auto row = static_cast<std::uint32_t>(warp.rank());
      if (row == 0) loaded.arriveAndExpect(bytes * count);
      warp.sync();
      if (row < count) bulkLoad(part[row], from + row * pitch, bytes, loaded);
      // Without a time limit: only for the GPU's own copy.
      while (!loaded.poll(phase)) {
      }
      phase ^= 1;
      if (row >= count) return;
      bulkStore(to + row * scratch.rowBytes(), part[row], bytes);
      bulkStoreCommit();
      bulkStoreWait();
    }
    MSCCLPP_DEVICE __forceinline__ void partsSent(int peer, std::size_t block, std::uint32_t rowPart,
                                                  std::uint32_t column, std::uint32_t /*end: the next one*/) const {
      const int number = scratch.partAt(static_cast<int>(column), static_cast<int>(rowPart));
      announcer.publish({peer, static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(number)});
    }
  };

  /// One thread of each of so many warps or blocks that have sent all of their parts. The last one tells the peers.
  MSCCLPP_DEVICE __forceinline__ void count(std::uint32_t all) const {
    const int own = args.team.rank();
    auto* const sent = reinterpret_cast<std::uint64_t*>(args.window.at(own, args.scratch.sendersOffset()));
    if (arch::fetchAdd<arch::Order::AcqRel, arch::Scope::Device>(sent, std::uint64_t{1}) + 1 != all) return;
    arch::store<arch::Order::Relaxed, arch::Scope::Device>(sent, std::uint64_t{0});
    for (int i = 0; i < args.team.size() - 1; ++i) {
      arch::store<arch::Order::Release, arch::Scope::System>(
          reinterpret_cast<std::uint64_t*>(args.window.at(args.team.peer(i), args.scratch.completeOffset(own))), epoch);
    }
  }
};

}  // namespace mscclpp::detail
