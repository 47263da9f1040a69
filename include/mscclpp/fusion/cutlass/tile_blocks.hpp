// Which block of a row exchange the rows of a tile are.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/collective/block_order.hpp"
#include "mscclpp/collective/row_scratch.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The numbering of the rows of tiles of a GEMM as blocks of rows of an exchange, whose owners take turns. If every
/// rank gets all results, it is the same. Otherwise the rows that a rank owns are consecutive in the output: the
/// numbers of tiles of the ranks differ by at most one, and the first ranks have the more.
template <RowDelivery delivery, class Owners>
struct TileBlocks {
  std::uint32_t tiles;  ///< rows of tiles
  int ranks;

  /// The first row of tiles of a rank; of `ranks`: their number.
  MSCCLPP_HOST_DEVICE std::uint32_t firstOf(int rank) const {
    const auto r = static_cast<std::uint32_t>(rank);
    const std::uint32_t each = tiles / static_cast<std::uint32_t>(ranks);
    const std::uint32_t rest = tiles % static_cast<std::uint32_t>(ranks);
    return r * each + (r < rest ? r : rest);
  }
  MSCCLPP_HOST_DEVICE std::uint32_t tileOf(std::uint32_t block) const {
    if constexpr (delivery != RowDelivery::ToOwner) return block;
    return firstOf(Owners::owner(block, ranks)) + static_cast<std::uint32_t>(Owners::index(block, ranks));
  }
  MSCCLPP_HOST_DEVICE std::uint32_t blockOf(std::uint32_t tile) const {
    if constexpr (delivery != RowDelivery::ToOwner) return tile;
    int owner = 0;
    while (owner + 1 < ranks && tile >= firstOf(owner + 1)) ++owner;
    return static_cast<std::uint32_t>(Owners::block(owner, tile - firstOf(owner), ranks));
  }
  /// The position of a row of tiles among the slots of a rank that reduces it.
  MSCCLPP_HOST_DEVICE std::uint32_t slotOf(std::uint32_t tile) const {
    if constexpr (delivery == RowDelivery::Redundant) return tile;
    return static_cast<std::uint32_t>(Owners::index(blockOf(tile), ranks));
  }
  /// The row of tiles in a slot of `rank`.
  MSCCLPP_HOST_DEVICE std::uint32_t tileIn(std::uint32_t slot, int rank) const {
    if constexpr (delivery == RowDelivery::Redundant) return slot;
    return tileOf(static_cast<std::uint32_t>(Owners::block(rank, slot, ranks)));
  }
  /// The i-th row of tiles in the order that begins with those of the next rank.
  MSCCLPP_HOST_DEVICE std::uint32_t inOrder(std::uint32_t i, int rank) const {
    return tileOf(static_cast<std::uint32_t>(remoteBlockFirst<Owners>(i, tiles, rank, ranks)));
  }
};

}  // namespace mscclpp
