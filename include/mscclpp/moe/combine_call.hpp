// One call of combine as a thread sees it: its arguments and session, the experts' results, and the items that the
// warps of a block take.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/piece_publisher.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/expert_rows.hpp"
#include "mscclpp/moe/expert_sums.hpp"
#include "mscclpp/moe/item_queue.hpp"
#include "mscclpp/moe/routing.hpp"
#include "mscclpp/moe/row_link.hpp"
#include "mscclpp/moe/row_session.hpp"

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

/// The memory of a block in a combine.
template <class Transport>
struct CombineMemory {
  /// Whether the warps of a block share memory, where a grid has it.
  static constexpr bool isShared = Transport::hasRowFlags && !Transport::usesPorts;
  struct Words {
    std::uint32_t sending, receiving;  ///< items that have been taken
    PublisherWords publisher;
  };
  static MSCCLPP_HOST_DEVICE constexpr std::size_t sharedBytes() { return isShared ? sizeof(Words) : 0; }
};

/// Made by every thread of the grid, in Combine::run(). The parts of the call are functions of it: combine_sender.hpp
/// and combine_receiver.hpp.
template <class T, class RowTransport, int Ranks, class GridType, class Source, class Sink>
struct CombineCall {
  using Element = T;
  using Transport = RowTransport;
  using Args = CombineArgs<Ranks, Transport>;
  using Session = RowSession<Ranks, RowSlots<Transport>, GridType, BoundedWait>;
  using Warp = typename Session::Warp;
  using Memory = CombineMemory<Transport>;
  static constexpr int width = Session::width;
  static constexpr int mostRanks = Ranks > 0 ? Ranks : maxTeamSize;
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

  // ---- items ----

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

  static constexpr bool sharesMemory = SharedMemoryGrid<GridType> && Memory::isShared;
  using Words = typename Memory::Words;
  MSCCLPP_INLINE Words* blockWords() const {
    if constexpr (sharesMemory) return reinterpret_cast<Words*>(grid.sharedMemory());
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
  MSCCLPP_INLINE ItemQueue queueOf(const typename Session::Share& share, std::uint32_t Words::*counter) const {
    if constexpr (sharesMemory) {
      return {&(blockWords()->*counter), static_cast<std::uint32_t>(share.block),
              static_cast<std::uint32_t>(share.blocks)};
    }
    return {nullptr, share.first(), share.stride()};
  }
};

}  // namespace mscclpp::moe
