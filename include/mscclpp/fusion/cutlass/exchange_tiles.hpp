// What the tiles of a GEMM are in a row exchange: which rows of the problem a rank gets, and which calls fit a scratch.
#pragma once

#include "mscclpp/basic/partition.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/cutlass/tile_blocks.hpp"

namespace mscclpp {

/// A tile of a problem: its row and column among the tiles.
struct TileCoordinate {
  int row;
  int column;
};

/// The tiles, of `rows` x `columns` elements, of a GEMM whose output is exchanged over a Scratch (RowScratch) of Ranks
/// ranks: a row of tiles is a block of the exchange, and a row of the problem one or several rows of the scratch.
template <int Ranks, class Scratch, int rows, int columns>
struct ExchangeTiles {
  using Blocks = TileBlocks<Scratch::delivery, typename Scratch::Owners>;
  static constexpr int tileRows = rows;
  static constexpr int tileColumns = columns;

  /// The rows of the scratch for each row of the problem.
  static MSCCLPP_HOST_DEVICE std::size_t partsOf(const Scratch& scratch) {
    return static_cast<std::size_t>(scratch.rowsPerBlock) / tileRows;
  }
  /// The numbering of the rows of tiles of a problem.
  static MSCCLPP_HOST_DEVICE Blocks blocksOf(std::size_t problemRows) {
    return {static_cast<std::uint32_t>(ceilDivide(problemRows, std::size_t{tileRows})), Ranks};
  }
  static MSCCLPP_HOST_DEVICE std::uint32_t columnTilesOf(int problemColumns) {
    return static_cast<std::uint32_t>((problemColumns + tileColumns - 1) / tileColumns);
  }
  /// Whether a tile is part of a problem: a cluster may have blocks of threads beyond its edges.
  static MSCCLPP_HOST_DEVICE bool contain(TileCoordinate at, std::size_t problemRows, int problemColumns) {
    return static_cast<std::uint32_t>(at.row) < blocksOf(problemRows).tiles && at.column * tileColumns < problemColumns;
  }
  /// The rows of the problem that are a rank's output: all, or with RowDelivery::ToOwner those that it owns.
  static MSCCLPP_HOST_DEVICE Range outputRows(std::size_t problemRows, int rank) {
    if (Scratch::delivery != RowDelivery::ToOwner) return {0, problemRows};
    const auto blocks = blocksOf(problemRows);
    const std::size_t begin = std::size_t{blocks.firstOf(rank)} * tileRows;
    const std::size_t end = std::size_t{blocks.firstOf(rank + 1)} * tileRows;
    return {begin < problemRows ? begin : problemRows, end < problemRows ? end : problemRows};
  }
  /// The rows of the exchange: those of the problem, with RowDelivery::ToOwner those of whole tiles.
  static MSCCLPP_HOST_DEVICE std::size_t exchangeRows(std::size_t problemRows) {
    return Scratch::delivery == RowDelivery::ToOwner ? roundUp(problemRows, std::size_t{tileRows}) : problemRows;
  }
  /// Whether a call for a problem of this size fits the scratch, the team and the result.
  template <class Result>
  static bool accept(std::size_t problemRows, std::size_t problemColumns,
                     const CollectiveArgs<Ranks, Scratch>& exchange, const Result& result) {
    const Scratch& scratch = exchange.scratch;
    const std::size_t parts = partsOf(scratch);
    // Where tiles are pieces of memory, whole ones.
    constexpr bool holdsTiles = requires {
      scratch.stagingBytes();
    };
    const bool fits = holdsTiles ? (scratch.columns >= problemColumns && scratch.columns % tileColumns == 0)
                                 : (scratch.columns * parts == problemColumns);
    return scratch.ranks == Ranks && parts > 0 && scratch.rowsPerBlock % tileRows == 0 && fits &&
           exchange.count == problemRows && scratch.accepts(exchangeRows(problemRows) * parts) &&
           result.accepts(outputRows(problemRows, exchange.team.rank()).size(), problemColumns);
  }
};

}  // namespace mscclpp
