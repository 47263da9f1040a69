// The scratch of an exchange of rows between all ranks: slots for rows, and the words that announce calls and counts.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::moe {

/// The packs of a row that a warp sends and receives in one step.
inline constexpr int stepPacks = 128;

/// A window in which each rank has slots for the rows from every rank, itself included. A row is `rowPacks` packs of
/// data and, for each step of them, `extraPacks` more.
template <class RowTransport>
struct RowSlots {
  using Transport = RowTransport;
  static constexpr int initialByte = Transport::initialByte;  ///< value of every byte before the first call
  static constexpr std::uint64_t firstEpoch = 1;
  /// Sets of entries and reports. With ports two, for the memory that they put from: docs/memory_model.md.
  static constexpr std::uint64_t wordSets = Transport::usesPorts ? 2 : 1;

  std::uint32_t maxRows;  ///< the most rows that a rank sends to another in a call
  std::uint32_t rowPacks;
  std::uint32_t extraPacks;
  std::uint32_t countWords;   ///< numbers of 32 bits that a rank sends to another as it enters a call
  std::uint32_t flagsPerRow;  ///< pieces of a row, of as many steps each, that are published one by one
  int ranks;

  MSCCLPP_HOST_DEVICE bool isValid() const {
    return maxRows > 0 && rowPacks > 0 && ranks > 0 && flagsPerRow > 0 && steps() % flagsPerRow == 0 &&
           std::uint64_t{maxRows} * packsOfRow() <= 0xffffffffu &&  // slots have 32-bit numbers
           (!Transport::hasRowFlags || maxRows <= 0x10000u);        // places in flags 16-bit ones
  }
  MSCCLPP_HOST_DEVICE std::uint32_t steps() const { return (rowPacks + stepPacks - 1) / stepPacks; }
  /// A multiple of 128 bytes, for full lines.
  MSCCLPP_HOST_DEVICE std::uint32_t packsOfRow() const { return (rowPacks + steps() * extraPacks + 7) / 8 * 8; }
  /// The slot of a pack of a row, of the rows from one rank.
  MSCCLPP_HOST_DEVICE std::uint32_t dataSlot(std::uint32_t row, std::uint32_t pack) const {
    return row * packsOfRow() + pack;
  }
  MSCCLPP_HOST_DEVICE std::uint32_t extraSlot(std::uint32_t row, std::uint32_t step, std::uint32_t extra) const {
    return row * packsOfRow() + rowPacks + step * extraPacks + extra;
  }

  /// The bytes of a row from its first slot on.
  MSCCLPP_HOST_DEVICE std::size_t rowBytes() const {
    return Transport::bytes(std::size_t{rowPacks} + steps() * extraPacks);
  }

  /// Offset in the window, in bytes, of the 64-bit word with the last call that rank `from` has entered.
  MSCCLPP_HOST_DEVICE std::size_t entryOffset(std::uint64_t epoch, int from) const {
    return wordOffset(epoch % wordSets, from);
  }
  /// Offset of the 64-bit word with what rank `from` has reported in a call: RowSession::report().
  MSCCLPP_HOST_DEVICE std::size_t reportOffset(std::uint64_t epoch, int from) const {
    return wordOffset(wordSets + epoch % wordSets, from);
  }
  /// Offset of the count words of rank `from`, of 64 bits each, in two sets.
  MSCCLPP_HOST_DEVICE std::size_t countOffset(std::uint64_t epoch, int from) const {
    const auto place = (epoch % 2) * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(from);
    return roundUp(wordOffset(2 * wordSets, 0), 128) + place * countBytes();
  }
  /// Offset of the 64-bit flag of a piece of a row from a rank: the last call in which it was complete, and its place
  /// (RowSession::publish()).
  MSCCLPP_HOST_DEVICE std::size_t flagOffset(int from, std::uint32_t row, std::uint32_t piece) const {
    const std::size_t flag = static_cast<std::size_t>(from) * flagsOfRank() + std::size_t{row} * flagsPerRow + piece;
    return countOffset(1, ranks) + flag * sizeof(std::uint64_t);
  }
  /// Offset of the slots for the rows from a rank.
  MSCCLPP_HOST_DEVICE std::size_t slotsOffset(std::uint64_t epoch, int from) const {
    const auto place = (epoch % Transport::sets) * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(from);
    return roundUp(flagOffset(ranks, 0, 0), 128) + place * slotBytes();
  }
  MSCCLPP_HOST_DEVICE std::size_t windowBytes() const { return slotsOffset(Transport::sets - 1, ranks); }

 private:
  MSCCLPP_HOST_DEVICE std::size_t wordOffset(std::uint64_t set, int from) const {
    return static_cast<std::size_t>(static_cast<int>(set) * ranks + from) * sizeof(std::uint64_t);
  }
  MSCCLPP_HOST_DEVICE std::size_t countBytes() const {
    return roundUp(std::size_t{countWords} * sizeof(std::uint64_t), 128);
  }
  MSCCLPP_HOST_DEVICE std::size_t flagsOfRank() const {
    return Transport::hasRowFlags ? std::size_t{maxRows} * flagsPerRow : 0;
  }
  MSCCLPP_HOST_DEVICE std::size_t slotBytes() const {
    return roundUp(Transport::bytes(std::size_t{maxRows} * packsOfRow()), 128);
  }
};

}  // namespace mscclpp::moe
