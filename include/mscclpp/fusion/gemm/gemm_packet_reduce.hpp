// A matrix multiplication of few rows whose tiles are reduced over the ranks in packets: the decode phase of a language
// model.
#pragma once

#include "mscclpp/basic/pack_reducer.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/packet_session.hpp"
#include "mscclpp/collective/row_scratch.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/gemm/matrix.hpp"
#include "mscclpp/fusion/gemm/pair_op.hpp"
#include "mscclpp/fusion/gemm/row_result.hpp"
#include "mscclpp/fusion/gemm/tile.hpp"
#include "mscclpp/fusion/gemm/tile_order.hpp"
#include "mscclpp/fusion/gemm/tile_shape.hpp"
#include "mscclpp/packet/sentinel.hpp"

namespace mscclpp {

/// The choices of a GemmPacketReduce.
struct GemmPacketReduceConfig {
  /// Redundant: an all-reduce in one hop. ToAll: in two hops, which send fewer bytes, or with two ranks in one.
  /// ToOwner: a reduce-scatter, in one hop.
  RowDelivery delivery = RowDelivery::Redundant;
  /// As many rows as a call has are best: each block of rows reads the weights once.
  GemmShape tile{.rows = 16, .columns = 64, .depth = 128, .stages = 8, .warpRows = 1, .warpDepths = 2};
  int ranks = 0;  ///< > 0: fixed at compile time; 0: known at run time
};

/// Every rank computes input * transpose of weight over its part of the depth; the products are rounded to T and summed
/// over the ranks in rank order, in fp32, and rounded once. All ranks get the same bits in every run, whatever the
/// number of blocks. With RowDelivery::ToOwner the ranks have the slices of rows of a GemmReduce
/// (fusion/gemm/gemm_reduce.hpp); otherwise every rank gets all rows.
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
template <class T, GemmPacketReduceConfig config>
struct GemmPacketReduce {
  static constexpr RowDelivery delivery = config.delivery;
  using P = Sentinel;
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
    return {roundUp(rows, tileRows) * roundUp(width, tileColumns) / packSize<T>, ranks};
  }
  /// Whether a launch of this shape can run with these arguments.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return shape.blocks >= 1 && shape.blocks <= maxBlocks && shape.threads == maxBlockThreads &&
           args.scratch.ranks == args.team.size() && args.scratch.arrayPacks <= maxPacks;
  }
  /// Shared memory of a block, in bytes.
  static MSCCLPP_HOST_DEVICE std::size_t sharedBytes(const Args&, LaunchShape) {
    return config.tile.sharedBytes(sizeof(T));
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class PairOp>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const GemmOperands<T, PairOp>& operands,
                                 const StoreRows<T>& result) {
    static_assert(SharedMemoryGrid<GridType>, "grid must have shared memory: gpu::Grid() or emulation::Grid");
    if (args.count == 0) return true;
    const Product product{args.count, operands.width(), sliceRows(args.count, args.team.size())};
    const Range own = product.of(args.team.rank());
    const std::size_t blocks = ceilDivide(args.count, tileRows);
    const GroupedTiles order{blocks, ceilDivide(operands.weight.rows, tileColumns), blocks};
    constexpr int tilePacks = GemmTile<T, config.tile, GridType>::template resultPacks<PairOp>;
    if (!accepts(args, {grid.blockCount(), grid.block().size()}) || !operands.fits(args.count) || product.width == 0 ||
        order.count() > args.scratch.arrayPacks / std::size_t{tilePacks} ||
        !result.accepts(own.size(), product.width)) {
      return detail::refuseArguments(grid, args);
    }
    auto&& trace = traceOf(grid);
    const TraceSpan span(trace, isScatter ? TraceId::ReduceScatter : TraceId::AllReduce,
                         args.count * product.width * sizeof(T));
    auto wait = tracedWait(args.wait, trace);
    PacketSession session(grid, args, wait, trace);
    GemmTile<T, config.tile, GridType> tile(grid, grid.sharedMemory());
    const auto store = [&](const Place& at, const Word128& word) {
      result.store({at.row - own.begin, at.column}, 0, word);
    };
    constexpr int packs = GemmTile<T, config.tile, GridType>::template packsPerThread<PairOp>;
    Place places[packs];
    Word128 words[packs];
    const auto count = static_cast<std::uint32_t>(order.count());
    const auto first = static_cast<std::uint32_t>(grid.blockIndex());
    const auto stride = static_cast<std::uint32_t>(grid.blockCount());
    MSCCLPP_NO_UNROLL
    for (std::uint32_t i = first; i < count; i += stride) {
      const TilePlace at = order(i);
      const std::size_t row = at.block * tileRows;
      const std::size_t column = at.part * tileColumns;
      tile.multiply(operands.input, row, operands.weight, column);
      if (session.hasStopped()) return false;  // asked now: the weights are requested first
      if (i == first) {
        session.begin();
      } else {
        receive(session, args.team, places, words, store);
      }
      tile.takePacks(row, column, operands.weight.rows, operands.op, words);
      MSCCLPP_UNROLL
      for (int k = 0; k < packs; ++k) {
        places[k] = product.template place<PairOp>(grid, args.team, i, row, column, k);
        if (places[k].slot.present && !hasFailed(wait)) send(session, args.team, places[k], words[k]);
      }
    }
    if (session.hasStopped()) return false;
    if (first < count) receive(session, args.team, places, words, store);
    return session.finish();
  }

 private:
  static constexpr std::size_t tileRows = config.tile.rows;
  static constexpr std::size_t tileColumns = config.tile.columns;
  static constexpr bool isScatter = delivery == RowDelivery::ToOwner;
  static constexpr std::size_t maxPacks = std::size_t{1} << 30;  // 32 bits count them

  // The arrays of slots: contributions to a pack, at the ranks that reduce it, and results, of its owner.
  static constexpr int contributions = 0;
  static constexpr int results = 1;

  /// A pack of this thread.
  struct Place {
    rows::RowPosition slot;  ///< present: it is in the product
    int owner;               ///< if present, the rank that reduces it, unless all ranks do
    std::size_t row;         ///< of the product
    std::size_t column;
  };

  /// The product of all ranks.
  struct Product {
    std::size_t count;
    std::size_t width;
    std::size_t slice;

    /// Those in the output of a rank.
    MSCCLPP_INLINE Range of(int rank) const {
      return isScatter ? steppedPart(count, slice, static_cast<std::size_t>(rank)) : Range{0, count};
    }
    /// The k-th pack of this thread in tile `tile`, whose element (0, 0) is element (row, column) of the product.
    template <class PairOp, class GridType, class Team>
    MSCCLPP_INLINE Place place(const GridType& grid, const Team& team, std::uint32_t tile, std::size_t row,
                               std::size_t column, int k) const {
      using Tile = GemmTile<T, config.tile, GridType>;
      constexpr int lanes = 32;
      constexpr int perTile = Tile::template resultPacks<PairOp> / lanes;
      static_assert(Tile::template resultPacks<PairOp> % lanes == 0, "a tile is a multiple of 32 packs");
      const int unit = grid.warpIndex() + k * config.tile.warps();  // the packs that a warp sends together
      const auto at = Tile::template placeOf<PairOp>(unit * lanes + grid.warp().rank());
      const std::uint32_t slot = tile * perTile + static_cast<std::uint32_t>(unit);
      Place place{{slot, 0, false, false}, 0, row + at.row, column / 2 * PairOp::outputs + at.column};
      place.slot.present = unit < perTile && place.row < count && place.column < width;
      if constexpr (isScatter) {
        // A division of 32 bits: one of 64 is slow on a GPU.
        place.owner = static_cast<int>(static_cast<std::uint32_t>(place.row) / static_cast<std::uint32_t>(slice));
      } else {
        place.owner = static_cast<int>(slot % static_cast<std::uint32_t>(team.size()));
      }
      return place;
    }
  };

  /// Whether every rank reduces every pack.
  template <class Team>
  static MSCCLPP_INLINE bool allReduce(const Team& team) {
    return delivery == RowDelivery::Redundant || (delivery == RowDelivery::ToAll && team.size() == 2);
  }

  /// Sends this rank's contribution to where it is reduced.
  template <class Session, class Team>
  static MSCCLPP_INLINE void send(Session& session, const Team& team, const Place& at, const Word128& word) {
    if (allReduce(team)) {
      session.broadcast(contributions, at.slot, word, session.rotation());
    } else if (at.owner != team.rank()) {
      session.send(contributions, at.owner, at.slot, word);
    }
  }

  /// Receives, reduces and stores the packs of a tile. words: this rank's contributions.
  template <class Session, class Team, int packs, class Store>
  static MSCCLPP_INLINE void receive(Session& session, const Team& team, const Place (&places)[packs],
                                     Word128 (&words)[packs], const Store& store) {
    MSCCLPP_UNROLL
    for (int k = 0; k < packs; ++k) {
      const Place& at = places[k];
      if (!at.slot.present || (!allReduce(team) && at.owner != team.rank())) continue;
      if (!reduce(session, team, at.slot, words[k])) return;  // without a result the peers' waits fail too
      if constexpr (delivery == RowDelivery::ToAll) {
        if (!allReduce(team)) session.broadcast(results, at.slot, words[k], session.rotation());
      }
      store(at, words[k]);
    }
    if constexpr (delivery == RowDelivery::ToAll) {
      if (allReduce(team)) return;
      MSCCLPP_UNROLL
      for (int k = 0; k < packs; ++k) {
        const Place& at = places[k];
        if (!at.slot.present || at.owner == team.rank()) continue;
        const int owners[1] = {at.owner};
        const rows::RowPosition slots[1] = {at.slot};
        Word128 word[1] = {};
        session.template receive<1>(results, owners, slots, word);
        store(at, word[0]);
      }
    }
  }

  /// Adds to this rank's contribution to a slot what the others send. Returns whether that arrived.
  template <class Session, class Team>
  static MSCCLPP_INLINE bool reduce(Session& session, const Team& team, const rows::RowPosition& slot, Word128& word) {
    const Word128 own = word;
    constexpr int atOnce = 4;  // loads in flight: one after the other, each would take a trip to the memory
    int ranks[atOnce];
    rows::RowPosition slots[atOnce];
    Word128 words[atOnce];
    const auto receiveFrom = [&](int first) {
      MSCCLPP_UNROLL
      for (int i = 0; i < atOnce; ++i) {
        ranks[i] = first + i;
        slots[i] = slot;
        slots[i].present = ranks[i] < team.size() && ranks[i] != team.rank();
        words[i] = own;
      }
      return session.template receive<atOnce>(contributions, ranks, slots, words);
    };
    bool arrived = receiveFrom(0);
    PackReducer<T, Sum> reducer(fromWord<T>(words[0]), Sum{});
    MSCCLPP_NO_UNROLL
    for (int first = 0; first < team.size(); first += atOnce) {
      if (first > 0) arrived = receiveFrom(first) && arrived;
      MSCCLPP_UNROLL
      for (int i = 0; i < atOnce; ++i) {
        if (first + i > 0 && first + i < team.size()) reducer.add(fromWord<T>(words[i]));
      }
    }
    word = toWord<T>(reducer.finish(team.size()));
    return arrived;
  }
};

}  // namespace mscclpp
