// The part of a row exchange that producers need: where the contributions to a row go, and how they are announced.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/row_scratch.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Where bulk stores write a block of rows, or a part of it, at its owner: row r of the block is at address + r *
/// pitch.
struct RowSlot {
  std::byte* address;
  std::size_t pitch;  ///< bytes
};

/// The contributions to one call of a row exchange, step 1 of RowExchange. Producers that are other warps than those
/// which reduce make one by makeRowContribution(), before a barrier of the block that comes before
/// RowExchange::finish(). It has two words of state: a kernel may keep it for all its tiles.
template <int Ranks, class Scratch>
class RowContribution {
 public:
  using T = typename Scratch::Element;
  using Owners = typename Scratch::Owners;
  static constexpr RowDelivery delivery = Scratch::delivery;

  MSCCLPP_INLINE RowContribution(const CollectiveArgs<Ranks, Scratch>& args, std::uint64_t epoch, bool hasStopped)
      : args_(args), epoch_(epoch), hasStopped_(hasStopped) {}

  /// Whether the call does nothing, since an earlier one has failed or, in a RowExchange, the arguments do not fit:
  /// then nothing may be contributed.
  MSCCLPP_INLINE bool hasStopped() const { return hasStopped_; }
  /// The number of the call, on which places in the scratch depend.
  MSCCLPP_INLINE std::uint64_t epoch() const { return epoch_; }
  /// The rank that reduces a block; with RowDelivery::Redundant every rank does.
  MSCCLPP_INLINE int owner(std::size_t block) const { return Owners::owner(block, team().size()); }

  /// Contributes elements [column, column + N) of a row: 4, 8 or 16 bytes, aligned to that. Called by one thread, once
  /// for each element. The caller's values are sent by plain stores; publish() makes them visible.
  template <int N>
  MSCCLPP_INLINE void contribute(std::size_t row, std::size_t column, const Vector<T, N>& values) const {
    static_assert(sizeof(values) == 4 || sizeof(values) == 8 || sizeof(values) == 16,
                  "a fragment must have 4, 8 or 16 bytes");
    forEachReducer(args_.scratch.blockOf(row), [&](int rank) {
      std::byte* const to = slot(row, rank).address + column * sizeof(T);
      if constexpr (sizeof(values) == 16) {
        arch::storeWide(to, arch::bitCast<Word128>(values));
      } else {
        arch::storePlain(to, arch::bitCast<typename arch::WordOfSize<sizeof(values)>::Type>(values));
      }
    });
  }
  /// The memory of `rank` for this rank's contributions to the rows of a block from `row` on, for stores of the
  /// caller's own, bulk copies for example: rank is owner(block), or each rank in turn with RowDelivery::Redundant.
  MSCCLPP_INLINE RowSlot slot(std::size_t row, int rank) const {
    return {args_.window.at(rank, args_.scratch.contributionOffset(epoch_, row, team().rank())),
            args_.scratch.rowBytes()};
  }
  /// This rank's contributions to a block of rows, at the ranks that reduce it: for many stores to one block, which
  /// contribute() would locate each for itself.
  class BlockSlots {
   public:
    /// Stores 16 bytes at `byte` of the rows of the block, scratch.rowBytes() from row to row; as contribute().
    MSCCLPP_INLINE void store(std::size_t byte, const Word128& word) const {
      if constexpr (delivery == RowDelivery::Redundant) {
        MSCCLPP_UNROLL
        for (int i = 0; i < args_.team.size() - 1; ++i) {
          arch::storeWide(args_.window.at(args_.team.peer(i), offset_ + byte), word);
        }
      }
      arch::storeWide(slot_ + byte, word);
    }

   private:
    friend class RowContribution;
    MSCCLPP_INLINE BlockSlots(const CollectiveArgs<Ranks, Scratch>& args, int rank, std::size_t offset)
        : args_(args), offset_(offset), slot_(args.window.at(rank, offset)) {}

    const CollectiveArgs<Ranks, Scratch>& args_;
    const std::size_t offset_;
    std::byte* const slot_;
  };
  MSCCLPP_INLINE BlockSlots slots(std::size_t block) const {
    const std::size_t row = block * static_cast<std::size_t>(args_.scratch.rowsPerBlock);
    return {args_, delivery == RowDelivery::Redundant ? team().rank() : owner(block),
            args_.scratch.contributionOffset(epoch_, row, team().rank())};
  }
  /// This rank's set of slots in this call (RowScratch::slotSet), the same at every rank.
  MSCCLPP_INLINE std::size_t slotSet() const { return args_.scratch.slotSet(epoch_, team().rank()); }
  /// Announces one part of a block of rows, with release: all that the threads of the group contributed to it before.
  /// Called by all threads of the group, once for each part, after the group's bulk stores to it are complete.
  template <ThreadGroup Group>
  MSCCLPP_INLINE void publish(const Group& group, std::size_t block) const {
    group.sync();
    if (hasStopped_) return;
    if constexpr (delivery == RowDelivery::Redundant) {
      for (int rank = group.rank(); rank < team().size(); rank += group.size()) countPart(rank, block);
    } else {
      if (group.rank() == 0) countPart(owner(block), block);
    }
  }

  // ---- for producers that reduce what they contribute themselves, piece by piece, while it is in registers ----

  /// Announces a part of a piece of a block of rows, with release: what the threads of the group stored before. A piece
  /// of a block that another rank reduces is a contribution, and announced to that rank; one of a block that this rank
  /// reduces is a result, and announced to all others. flag: offset in the window of the part's word of 64 bits, which
  /// holds the number of the last call. Called by all threads of the group; its bulk stores, if any, are complete.
  /// If the call has failed on this rank, it announces nothing, so that the peers' waits fail too. order: Release, or
  /// Relaxed after a system-wide fence of the caller's, which several pieces may share.
  template <arch::Order order = arch::Order::Release, ThreadGroup Group>
  MSCCLPP_INLINE void publishPiece(const Group& group, std::size_t block, std::size_t flag) const {
    group.sync();
    if (hasStopped_ || args_.epochs.hasStopped(epoch_ + 1)) return;
    const bool isResult = owner(block) == team().rank();
    for (int i = group.rank(); i < (isResult ? team().size() - 1 : 1); i += group.size()) {
      arch::store<order, arch::Scope::System>(flagAt(isResult ? team().peer(i) : owner(block), flag), epoch_);
    }
  }
  /// Waits until all `parts` parts of a piece have been announced to this rank: the contributions of all other ranks,
  /// or the result, as above. flagOf(from): the flag of the first part of rank `from`, which those of the other parts
  /// follow. Called by all lanes of a warp. blockIndex: of the block of threads. Returns whether they arrived, the same
  /// in all lanes; if not, the call fails.
  template <class Warp, WaitPolicy Wait, class FlagOf>
  MSCCLPP_INLINE bool awaitPiece(const Warp& warp, Wait& wait, int blockIndex, std::size_t block, int parts,
                                 const FlagOf& flagOf) const {
    if (hasStopped_) return false;
    const bool isSum = owner(block) == team().rank();
    for (int i = warp.rank(); i < (isSum ? team().size() - 1 : 1) * parts; i += warp.size()) {
      const int from = isSum ? team().peer(i / parts) : owner(block);
      const std::size_t flag = flagOf(from) + static_cast<std::size_t>(i % parts) * sizeof(std::uint64_t);
      await(wait, blockIndex, flagAt(team().rank(), flag), from, epoch_,
            [&](std::uint64_t seen) { return static_cast<std::int64_t>(seen - epoch_) >= 0; });
    }
    warp.sync();
    if (!warp.any(hasFailed(wait))) return true;
    args_.epochs.stop(epoch_);
    return false;
  }

 protected:
  MSCCLPP_INLINE const Team<Ranks>& team() const { return args_.team; }
  /// Waits until isReached(value of the word), with acquire. One thread.
  template <WaitPolicy Wait, class Word, class IsReached>
  MSCCLPP_INLINE void await(Wait& wait, int blockIndex, const Word* word, int peer, std::uint64_t expected,
                            const IsReached& isReached) const {
    const WaitSite site{WaitOperation::Progress, team().rank(), peer, static_cast<std::uint32_t>(blockIndex), expected};
    wait.until(site, [&](std::uint64_t& seen) {
      seen = arch::load<arch::Order::Acquire, arch::Scope::System>(word);
      return isReached(seen);
    });
  }
  MSCCLPP_INLINE std::uint64_t* flagAt(int rank, std::size_t offset) const {
    return reinterpret_cast<std::uint64_t*>(args_.window.at(rank, offset));
  }
  /// The word at `rank` that counts the parts of a block which `from` has published.
  MSCCLPP_INLINE std::uint32_t* arrivalsOf(int rank, std::size_t block, int from) const {
    return reinterpret_cast<std::uint32_t*>(args_.window.at(rank, args_.scratch.arrivalOffset(epoch_, block, from)));
  }

  const CollectiveArgs<Ranks, Scratch>& args_;
  const std::uint64_t epoch_;
  bool hasStopped_;  ///< an earlier call has failed

 private:
  /// Calls f(rank) for the ranks that reduce a block.
  template <class F>
  MSCCLPP_INLINE void forEachReducer(std::size_t block, const F& f) const {
    if constexpr (delivery == RowDelivery::Redundant) {
      f(team().rank());
      MSCCLPP_UNROLL
      for (int i = 0; i < team().size() - 1; ++i) f(team().peer(i));
    } else {
      f(owner(block));
    }
  }
  MSCCLPP_INLINE void countPart(int rank, std::size_t block) const {
    arch::reduceAdd<arch::Order::Release, arch::Scope::System>(arrivalsOf(rank, block, team().rank()), 1u);
  }
};

/// The contributions of a call whose blocks of threads are those of the grid.
template <Grid GridType, int Ranks, class Scratch>
MSCCLPP_INLINE RowContribution<Ranks, Scratch> makeRowContribution(const GridType& grid,
                                                                   const CollectiveArgs<Ranks, Scratch>& args) {
  const std::uint64_t epoch = args.epochs.current(grid);
  return {args, epoch, args.epochs.hasStopped(epoch)};
}

}  // namespace mscclpp
