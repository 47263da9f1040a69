// A matrix multiplication of few rows whose tiles are reduced over the ranks in packets: the decode phase of a language
// model.
#pragma once

#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/packet_session.hpp"
#include "mscclpp/collective/reduce_ranks.hpp"
#include "mscclpp/collective/row_scratch.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/gemm/matrix.hpp"
#include "mscclpp/fusion/gemm/packet_layout.hpp"
#include "mscclpp/fusion/gemm/pair_op.hpp"
#include "mscclpp/fusion/gemm/row_result.hpp"
#include "mscclpp/fusion/gemm/tile.hpp"
#include "mscclpp/fusion/gemm/tile_order.hpp"
#include "mscclpp/fusion/gemm/tile_shape.hpp"
#include "mscclpp/packet/sentinel.hpp"

namespace mscclpp {

/// The choices of a GemmPacketReduce.
struct GemmPacketReduceConfig {
  /// Redundant: an all-reduce in one hop. ToAll: in one hop or in two, which send fewer bytes but take longer, as
  /// isOneHopFaster() says (fusion/gemm/packet_layout.hpp). ToOwner: a reduce-scatter, in one hop.
  RowDelivery delivery = RowDelivery::Redundant;
  /// As many rows as a call has are best: each block of rows reads the weights once.
  GemmShape tile{.rows = 16, .columns = 64, .depth = 128, .stages = 8, .warpRows = 1, .warpDepths = 2};
  int ranks = 0;                   ///< > 0: fixed at compile time; 0: known at run time
  std::size_t hopBytes = 560'000;  ///< of ToAll: what a rank sends over its link in the latency of a hop
};

namespace detail {
template <class P>
concept RepeatsFlags = requires {
  P::clearInterval;
};
}  // namespace detail

/// Every rank computes input * transpose of weight over its part of the depth; the products are rounded to T and summed
/// over the ranks in rank order, in fp32, and rounded once. All ranks get the same bits in every run, whatever the
/// number of blocks. With RowDelivery::ToOwner the ranks have the slices of rows of a GemmReduce
/// (fusion/gemm/gemm_reduce.hpp); otherwise every rank gets all rows. Operand: the type of input and weights, as of
/// a GemmTile (fusion/gemm/tile.hpp).
///
/// With few rows the time is that of reading the weights once, and then that of what follows the last tile. So a tile
/// has all rows, all warps of a block compute it, and the same threads send it in packets (packet/sentinel.hpp), whose
/// data and arrival are one store, to the blocks with the same tile on other ranks, and reduce what those send. No
/// block waits for another of its rank, no barrier or fence follows a tile, and with one rank nothing does. The packets
/// of a tile are awaited after the next tile has been computed. The source of the idea of packets is NCCL's LL
/// protocol.
///
/// run() is called by all threads of a grid, on every rank with the same sizes and config. Blocks have maxBlockThreads
/// threads, and all blocks are resident at once. args.count: rows; with none it returns at once. result.output: of all
/// rows, or with RowDelivery::ToOwner of those of this rank. Sizes are any whose tiles fit in the scratch; the depth
/// may be 0. Two calls on one scratch do not overlap in time, and a rank's call starts when all blocks of its previous
/// one have ended. Other arguments are refused: that is a record in args.wait's control block, and on a CPU
/// InvalidCall. A wait that fails leaves its record there too; the output is then meaningless.
template <class T, GemmPacketReduceConfig config, class Operand = T>
struct GemmPacketReduce {
  static constexpr RowDelivery delivery = config.delivery;
  using P = Sentinel;
  static_assert(!detail::RepeatsFlags<P>, "slots that a call does not use are not cleared: a flag must not repeat");
  /// In a reduce-scatter, a rank without rows needs nobody's data.
  using Scratch = PacketSlots<P, delivery == RowDelivery::ToAll ? 2 : 1,
                              delivery == RowDelivery::ToOwner ? SlotReuse::ByCredits : SlotReuse::ByData>;
  using Args = CollectiveArgs<config.ranks, Scratch>;
  static constexpr int maxBlockThreads = config.tile.warps() * 32;

  /// Rows of the slice of a rank, but for the last ones.
  static MSCCLPP_HOST_DEVICE std::size_t sliceRows(std::size_t rows, int ranks) {
    return ceilDivide(rows, static_cast<std::size_t>(ranks));
  }
  /// The scratch for calls of up to `rows` rows of up to `width` columns, those of the result.
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(std::size_t rows, std::size_t width, int ranks) {
    const std::size_t pairs = Layout<2>::mostSlotRows(rows, width, ranks, config.hopBytes);
    const std::size_t singles = Layout<1>::mostSlotRows(rows, width, ranks, config.hopBytes);
    return {(pairs > singles ? pairs : singles) * Layout<2>::lanes, ranks};
  }
  /// Whether a launch of this shape can run with these arguments.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return shape.blocks >= 1 && shape.blocks <= maxBlocks && shape.threads == maxBlockThreads &&
           args.scratch.ranks == args.team.size() && args.scratch.arrayPacks <= maxPacks;
  }
  /// Shared memory of a block, in bytes.
  static MSCCLPP_HOST_DEVICE std::size_t sharedBytes(const Args&, LaunchShape) {
    return config.tile.sharedBytes(sizeof(Operand), sizeof(T));
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class PairOp>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const GemmOperands<Operand, PairOp>& operands,
                                 const StoreRows<T>& result) {
    static_assert(SharedMemoryGrid<GridType>, "grid must have shared memory: gpu::Grid() or emulation::Grid");
    if (args.count == 0) return true;
    const std::size_t width = operands.width();
    const Range own = isScatter ? steppedPart(args.count, sliceRows(args.count, args.team.size()),
                                              static_cast<std::size_t>(args.team.rank()))
                                : Range{0, args.count};
    const std::size_t blocks = ceilDivide(args.count, tileRows);
    const GroupedTiles order{blocks, ceilDivide(operands.weight.rows, tileColumns), blocks};
    const Layout<PairOp::outputs> layout(args.count, order.parts, args.team.size(), config.hopBytes);
    if (!accepts(args, {grid.blockCount(), grid.block().size()}) || !operands.fits(args.count) || width == 0 ||
        !layout.fits(args.scratch.arrayPacks) || !result.accepts(own.size(), width)) {
      return detail::refuseArguments(grid, args);
    }
    if constexpr (checked) {
      if (!compareCalls<GemmPacketReduce, CallGrids::Any>(grid, args)) return false;
    }
    auto&& trace = traceOf(grid);
    const TraceSpan span(trace, isScatter ? TraceId::ReduceScatter : TraceId::AllReduce,
                         args.count * width * sizeof(T));
    auto wait = tracedWait(args.wait, trace);
    PacketSession session(grid, args, wait, trace);
    const Peers<decltype(session), Layout<PairOp::outputs>> peers{session, args, layout};
    const std::uint64_t epoch = args.epochs.current(grid);
    const auto reduce = [&](int array, const rows::RowPosition& at, Word128& word) {
      const int rank = args.team.rank();
      const auto slotsOf = [&](int from) {
        return args.window.at(rank, args.scratch.offset(epoch, array, from, rank));
      };
      const WaitSite site{WaitOperation::Packet, rank, -1, static_cast<std::uint32_t>(grid.blockIndex()), epoch};
      return rows::reduceRanks<P, T, ranksAtOnce>(grid.warp(), wait, site, args.team, slotsOf, at, epoch, word, Sum{});
    };
    const auto store = [&](const Place& at, const Word128& word) {
      result.store({at.row - own.begin, at.column}, 0, word);
    };
    using Tile = GemmTile<T, config.tile, GridType, Operand>;
    Tile tile(grid, grid.sharedMemory());
    constexpr int packs = Tile::template packsPerThread<PairOp>;
    Place places[packs];
    Word128 words[packs];
    const auto count = static_cast<std::uint32_t>(order.count());
    const auto first = static_cast<std::uint32_t>(grid.blockIndex());
    MSCCLPP_NO_UNROLL
    for (std::uint32_t i = first;; i += static_cast<std::uint32_t>(grid.blockCount())) {
      const bool computes = i < count;  // after the last tile its packets are received
      const TilePlace at = computes ? order(i) : TilePlace{0, 0};
      const std::size_t row = at.block * tileRows;
      const std::size_t column = at.part * tileColumns;
      if (computes) tile.multiply(operands.input, row, operands.weight, column);
      if (session.hasStopped()) return false;  // asked now: the weights are requested first
      if (i == first) {
        session.begin();
      } else {
        receive(peers, places, words, reduce, store);
      }
      if (!computes) break;
      tile.takePacks(row, column, operands.weight.rows, operands.op, words);
      MSCCLPP_UNROLL
      for (int k = 0; k < packs; ++k) {
        const int pack = grid.block().rank() + k * maxBlockThreads;
        const auto inTile = Tile::template placeOf<PairOp>(pack);
        const auto slot = layout.slot(at, static_cast<std::uint32_t>(pack));
        Place& place = places[k];
        place = {{slot.row, 0, false, false},
                 slot.part,
                 static_cast<std::uint32_t>(row + inTile.row),
                 static_cast<std::uint32_t>(at.part * Layout<PairOp::outputs>::columns + inTile.column)};
        place.slot.present =
            pack < Tile::template resultPacks<PairOp> && place.row < args.count && place.column < width;
        if (place.slot.present && !hasFailed(wait)) send(peers, place, words[k]);
      }
    }
    return session.finish();
  }

 private:
  static constexpr std::size_t tileRows = config.tile.rows;
  static constexpr std::size_t tileColumns = config.tile.columns;
  static constexpr bool isScatter = delivery == RowDelivery::ToOwner;
  static constexpr std::size_t maxPacks = std::size_t{1} << 30;  // 32 bits count them
  static constexpr int ranksAtOnce = 4;                          // whose packets are loaded together
  template <int outputs>
  using Layout = PacketLayout<T, delivery, config.tile, outputs>;

  // The arrays of slots: contributions to a pack, at the ranks that reduce it, and in two hops results, of its owner.
  static constexpr int contributions = 0;
  static constexpr int results = 1;

  /// A pack of this thread.
  struct Place {
    rows::RowPosition slot;  ///< present: it is in the product
    int part;                ///< PacketLayout::Slot::part
    std::uint32_t row;       ///< of the product: 32 bits, since a thread keeps them while it computes the next tile
    std::uint32_t column;
  };

  /// What a call sends by.
  template <class Session, class LayoutType>
  struct Peers {
    Session& session;
    const Args& args;
    const LayoutType& layout;

    MSCCLPP_INLINE bool reduces(const Place& at) const { return layout.takesOneHop() || at.part == args.team.rank(); }
    /// The array of contributions to a pack.
    MSCCLPP_INLINE int arrayOf(const Place& at) const { return layout.takesOneHop() ? at.part : contributions; }
  };

  /// Sends this rank's contribution to where it is reduced.
  template <class PeersType>
  static MSCCLPP_INLINE void send(const PeersType& peers, const Place& at, const Word128& word) {
    if (peers.layout.takesOneHop()) {
      peers.session.broadcast(peers.arrayOf(at), at.slot, word, peers.session.rotation());
    } else if (!peers.reduces(at)) {
      peers.session.send(contributions, at.part, at.slot, word);
    }
  }

  /// Receives, reduces and stores the packs of a tile. words: this rank's contributions. reduce: adds to one what the
  /// others send through an array, and returns whether that arrived.
  template <class PeersType, int packs, class Reduce, class Store>
  static MSCCLPP_INLINE void receive(const PeersType& peers, const Place (&places)[packs], Word128 (&words)[packs],
                                     const Reduce& reduce, const Store& store) {
    MSCCLPP_UNROLL
    for (int k = 0; k < packs; ++k) {
      const Place& at = places[k];
      if (!at.slot.present || !peers.reduces(at)) continue;
      if (!reduce(peers.arrayOf(at), at.slot, words[k])) return;  // without a result the peers' waits fail too
      if constexpr (delivery == RowDelivery::ToAll) {
        if (!peers.layout.takesOneHop()) peers.session.broadcast(results, at.slot, words[k], peers.session.rotation());
      }
      store(at, words[k]);
    }
    if constexpr (delivery == RowDelivery::ToAll) {
      MSCCLPP_UNROLL
      for (int k = 0; k < packs; ++k) {
        const Place& at = places[k];
        if (!at.slot.present || peers.reduces(at)) continue;
        const int owners[1] = {at.part};
        const rows::RowPosition slots[1] = {at.slot};
        Word128 word[1] = {};
        peers.session.template receive<1>(results, owners, slots, word);
        store(at, word[0]);
      }
    }
  }
};

}  // namespace mscclpp
