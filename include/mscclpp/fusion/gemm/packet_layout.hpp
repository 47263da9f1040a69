// Where a GEMM that is reduced in packets sends its result: the rank that reduces each pack, and the slot there.
#pragma once

#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/collective/row_scratch.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/gemm/tile_order.hpp"
#include "mscclpp/fusion/gemm/tile_shape.hpp"

namespace mscclpp {

/// Whether an all-reduce of a product of so many bytes in one hop, in which every rank sends its product to every other
/// one, takes no longer than one in two hops. hopBytes: what a rank sends over its link in the latency of a hop.
///
/// Of n ranks, each sends n - 1 times its product in one hop and 2 (n - 1) / n times in two: (n - 1) (n - 2) / n times
/// the product is to take no longer than a hop. At 350 GB/s a hop of 1.6 us is 560,000 bytes, and the limit 51 rows of
/// 8192 elements of 2 bytes with 3 ranks, 22 with 4 and 6 with 8. With 2 ranks there is none.
MSCCLPP_HOST_DEVICE constexpr bool isOneHopFaster(std::size_t bytes, std::size_t hopBytes, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return n <= 2 || bytes * ((n - 1) * (n - 2)) <= hopBytes * n;  // no division: a kernel asks before it does anything
}
/// The most bytes for which it is.
MSCCLPP_HOST_DEVICE constexpr std::size_t mostOneHopBytes(std::size_t hopBytes, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return n <= 2 ? ~std::size_t{0} : hopBytes * n / ((n - 1) * (n - 2));
}

/// The slots of the packs of one call. A rank has slots only for what it reduces: of a reduce-scatter its own rows; of
/// an all-reduce in two hops a share of all packs, from each of the others, and as many for the results of each.
///
/// A column of tiles is a strip, whose packs are numbered row by row. Slots come in rows of 32, one for each lane: a
/// pack's number modulo 32 is the lane that has it. outputs: results of a pair of columns (fusion/gemm/pair_op.hpp).
template <class T, RowDelivery delivery, GemmShape tile, int outputs>
class PacketLayout {
 public:
  static constexpr std::size_t lanes = 32;
  /// The arrays of slots, which two hops use for contributions and results, and ToAll in one hop in turn.
  static constexpr std::size_t arrays = delivery == RowDelivery::ToAll ? 2 : 1;
  /// Columns of the result in a strip, and packs of its rows.
  static constexpr std::size_t columns = tile.columns / 2 * outputs;
  static constexpr std::size_t rowPacks = columns / packSize<T>;

  /// For a product of `rows` rows in `strips` strips.
  MSCCLPP_HOST_DEVICE PacketLayout(std::size_t rows, std::size_t strips, int ranks, std::size_t hopBytes)
      : strips_(strips),
        slice_(isScatter ? ceilDivide(rows, static_cast<std::size_t>(ranks)) : rows),
        stripRows_(ceilDivide(slice_ * rowPacks, lanes)),
        takesOneHop_(delivery == RowDelivery::Redundant ||
                     (delivery == RowDelivery::ToAll &&
                      isOneHopFaster(strips * rows * rowPacks * sizeof(Word128), hopBytes, ranks))),
        parts_(isScatter      ? 1
               : takesOneHop_ ? arrays
                              : static_cast<std::size_t>(ranks)) {}

  /// Whether every rank reduces every pack.
  MSCCLPP_INLINE bool takesOneHop() const { return takesOneHop_; }
  /// Rows of slots of an array, from each sender, and whether these fit in a scratch with arrays of so many packs.
  MSCCLPP_HOST_DEVICE std::size_t slotRows() const { return ceilDivide(strips_ * stripRows_, parts_); }
  MSCCLPP_INLINE bool fits(std::size_t arrayPacks) const { return strips_ * stripRows_ <= arrayPacks / lanes * parts_; }
  /// The most of them in calls of up to so many rows and columns, those of the result.
  static MSCCLPP_HOST_DEVICE std::size_t mostSlotRows(std::size_t rows, std::size_t width, int ranks,
                                                      std::size_t hopBytes) {
    const std::size_t strips = ceilDivide(width, columns);
    const std::size_t most = PacketLayout(rows, strips, ranks, 0).slotRows();
    if (delivery != RowDelivery::ToAll) return most;
    // Shorter calls may take one hop. A strip's last row of slots may be incomplete.
    const std::size_t all = strips * ceilDivide(rows * rowPacks, lanes);
    const std::size_t limit = mostOneHopBytes(hopBytes, ranks) / (lanes * sizeof(Word128)) + strips;
    const std::size_t oneHop = ceilDivide(all < limit ? all : limit, arrays);
    return oneHop > most ? oneHop : most;
  }

  /// Where a pack is sent. part: the rank that reduces it or, in one hop, to all of which it is sent, the array.
  struct Slot {
    std::uint32_t row;
    int part;
  };
  /// Of pack i of a tile (GemmTile::placeOf), if its row is one of the product. Its lane is i modulo 32.
  MSCCLPP_INLINE Slot slot(const TilePlace& at, std::uint32_t i) const {
    // Divisions of 32 bits: those of 64 are slow on a GPU.
    constexpr auto rowOfSlots = static_cast<std::uint32_t>(lanes);
    const auto strip = static_cast<std::uint32_t>(at.part) * static_cast<std::uint32_t>(stripRows_);
    const std::uint32_t number = static_cast<std::uint32_t>(at.block) * static_cast<std::uint32_t>(tilePacks) + i;
    if constexpr (isScatter) {
      const auto packs = static_cast<std::uint32_t>(slice_ * rowPacks);
      return {strip + number % packs / rowOfSlots, static_cast<int>(number / packs)};
    } else {
      const std::uint32_t all = strip + number / rowOfSlots, parts = static_cast<std::uint32_t>(parts_);
      return {all / parts, static_cast<int>(all % parts)};
    }
  }

 private:
  static constexpr bool isScatter = delivery == RowDelivery::ToOwner;
  static constexpr std::size_t tilePacks = static_cast<std::size_t>(tile.rows) * rowPacks;
  static_assert(tilePacks % lanes == 0, "a tile is a multiple of 32 packs");

  std::size_t strips_;
  std::size_t slice_;      ///< rows that a rank reduces; of an all-reduce all
  std::size_t stripRows_;  ///< rows of slots of a strip
  bool takesOneHop_;
  std::size_t parts_;  ///< ranks or arrays that consecutive rows of slots go to
};

}  // namespace mscclpp
