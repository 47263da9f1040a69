// What a dispatch computes with on its rank, its arguments, and the memory of a block.
#pragma once

#include "mscclpp/basic/team.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/block_routing.hpp"
#include "mscclpp/moe/block_words.hpp"
#include "mscclpp/moe/expert_rows.hpp"
#include "mscclpp/moe/routing.hpp"
#include "mscclpp/moe/routing_layout.hpp"
#include "mscclpp/moe/row_link.hpp"
#include "mscclpp/moe/row_session.hpp"
#include "mscclpp/moe/row_table.hpp"
#include "mscclpp/sync/grid_barrier.hpp"

namespace mscclpp::moe {

/// Memory of this rank that a dispatch computes with; used by one call at a time. barrier and gate are zero before the
/// first call.
struct DispatchWorkspace {
  RoutingLayout layout;  ///< rankIndex is the handle's; not used over a PacketTransport
  GridBarrier* barrier;  ///< not used over a PacketTransport
  /// Not used over a PacketTransport. It is opened with the number of the call: for calls with the same `epochs` only.
  GridGate* gate;
  /// [blocks][Dispatch::blockWords()]; not used where they are in shared memory: sharesWords()
  std::uint32_t* blockMemory;
  int blocks;  ///< the most blocks of a launch
};

/// The arguments of a Dispatch. `count` is the number of this rank's tokens, which may differ between the ranks.
template <int Ranks, class Transport, class Index>
struct DispatchArgs : RowArgs<Ranks, Transport> {
  Dimensions dimensions;
  Routing<Index> routing;
  DispatchWorkspace workspace;
  ExpertPlacement placement;
  Handle handle;
  Phase phase;
  /// Over a transport with row flags, in a call that is not split: so many blocks send to other ranks and do nothing
  /// else, and the others store the rows from this rank to itself and receive. 0, or not less than all blocks: each
  /// does all of it. Not used with bulk copies.
  int sendingBlocks;
  /// Over a StoreTransport: blocks that have no part in the layout of the routing send the first row of each warp
  /// meanwhile. For many tokens: with few the layout ends as soon as the others have entered the call.
  bool sendsEarly = false;
  /// The L2 cache does not hold the rows that arrive: it had better keep others than those that have been read.
  bool streams = false;
};

/// The memory of a block: queues of bulk copies, where it sends by them, and words of 32 bits that it computes with.
template <class Transport, int Ranks>
struct DispatchMemory {
  static constexpr int destinations = Ranks > 0 ? Ranks : maxTeamSize;
  /// Whether each block counts the tokens of the experts for itself (BlockRouting), instead of all blocks together and
  /// with a barrier: for the few tokens that travel as packets.
  static constexpr bool countsInBlocks = !Transport::hasRowFlags;

  /// The row table and the bits of all tokens, or those of a layout, which ends before the table begins.
  static MSCCLPP_HOST_DEVICE std::size_t blockWords(const Dimensions& dimensions) {
    const std::size_t table = rowTableWords(dimensions);
    if constexpr (countsInBlocks) return table + blockRoutingWords(dimensions);
    const std::size_t layout = routingLayoutWords(dimensions);
    return table > layout ? table : layout;
  }
  static MSCCLPP_HOST_DEVICE constexpr std::size_t queueBytes() {
    if constexpr (Transport::usesBulkCopies) {
      return Transport::queues * sizeof(typename Transport::template Queue<destinations>::Scratch);
    } else {
      return 0;
    }
  }
  static MSCCLPP_HOST_DEVICE std::size_t sharedBytes(const Dimensions& dimensions) {
    return queueBytes() + sharedWordBytes(blockWords(dimensions));
  }
};

}  // namespace mscclpp::moe
