// The scratch of a row exchange: rows of contributions, results, and the words that announce them.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Who reduces a row, and which ranks get its result.
enum class RowDelivery {
  ToOwner,   ///< its owner reduces it and keeps the result: a reduce-scatter of rows, one hop
  ToAll,     ///< its owner reduces it and sends the result to all ranks: an all-reduce in two hops
  Redundant  ///< every rank gets all contributions and reduces every row itself: an all-reduce in one hop
};

/// Blocks of rows belong to the ranks in turn. Another type with these functions may take its place: block() is the
/// inverse of owner() and index().
struct CyclicOwners {
  static MSCCLPP_HOST_DEVICE int owner(std::size_t block, int ranks) {
    return static_cast<int>(block % static_cast<std::size_t>(ranks));
  }
  /// The position of a block among those of its owner.
  static MSCCLPP_HOST_DEVICE std::size_t index(std::size_t block, int ranks) {
    return block / static_cast<std::size_t>(ranks);
  }
  static MSCCLPP_HOST_DEVICE std::size_t block(int owner, std::size_t index, int ranks) {
    return index * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(owner);
  }
  /// How many of `blocks` blocks an owner has; rank 0 has the most.
  static MSCCLPP_HOST_DEVICE std::size_t count(std::size_t blocks, int owner, int ranks) {
    const auto first = static_cast<std::size_t>(owner);
    return blocks > first ? ceilDivide(blocks - first, static_cast<std::size_t>(ranks)) : 0;
  }
};

/// The window of a row exchange of elements T. It holds the contributions of a whole call, so that contributing never
/// waits; calls alternate between two sets.
template <class T, RowDelivery rowDelivery, class RowOwners = CyclicOwners>
struct RowScratch {
  using Element = T;
  using Owners = RowOwners;
  static constexpr RowDelivery delivery = rowDelivery;
  static constexpr int initialByte = 0;  ///< value of every byte of the window before the first call
  static constexpr std::uint64_t firstEpoch = 1;

  std::size_t rows;         ///< the most rows of a call
  std::size_t columns;      ///< elements of a row; rowBytes() is a multiple of 16
  std::size_t resultBytes;  ///< bytes of the result of a row, a multiple of 16; RowDelivery::ToAll only
  int rowsPerBlock;         ///< consecutive rows that have one owner and are published together
  int ranks;

  /// Whether a call with this number of rows fits.
  MSCCLPP_HOST_DEVICE bool accepts(std::size_t count) const {
    return count > 0 && count <= rows && rowsPerBlock > 0 && columns > 0 && rowBytes() % sizeof(Word128) == 0 &&
           resultBytes % sizeof(Word128) == 0;
  }

  MSCCLPP_HOST_DEVICE std::size_t rowBytes() const { return columns * sizeof(T); }
  MSCCLPP_HOST_DEVICE std::size_t blocks() const { return blocksOf(rows); }
  MSCCLPP_HOST_DEVICE std::size_t blocksOf(std::size_t rowCount) const {
    return ceilDivide(rowCount, static_cast<std::size_t>(rowsPerBlock));
  }
  MSCCLPP_HOST_DEVICE std::size_t blockOf(std::size_t row) const {
    return row / static_cast<std::size_t>(rowsPerBlock);
  }
  /// The most blocks of rows that a rank reduces.
  MSCCLPP_HOST_DEVICE std::size_t reducedBlocks() const {
    return delivery == RowDelivery::Redundant ? blocks() : Owners::count(blocks(), 0, ranks);
  }

  /// The set of slots of what rank `from` contributes in a call: of 2 * ranks sets, which begin at the start of the
  /// window and follow each other; each has reducedBlocks() * rowsPerBlock rows.
  MSCCLPP_HOST_DEVICE std::size_t slotSet(std::uint64_t epoch, int from) const {
    return (epoch % 2) * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(from);
  }
  /// Offset in the window, in bytes, of what rank `from` contributes to a row; the rows of a block follow each other.
  MSCCLPP_HOST_DEVICE std::size_t contributionOffset(std::uint64_t epoch, std::size_t row, int from) const {
    const std::size_t block = blockOf(row);
    const std::size_t index = delivery == RowDelivery::Redundant ? block : Owners::index(block, ranks);
    const std::size_t perRank = reducedBlocks() * static_cast<std::size_t>(rowsPerBlock);
    const std::size_t inBlock = row % static_cast<std::size_t>(rowsPerBlock);
    return (slotSet(epoch, from) * perRank + index * static_cast<std::size_t>(rowsPerBlock) + inBlock) * rowBytes();
  }
  /// The result of a row.
  MSCCLPP_HOST_DEVICE std::size_t resultOffset(std::uint64_t epoch, std::size_t row) const {
    return resultsStart() + ((epoch % 2) * rows + row) * resultBytes;
  }
  /// The 64-bit word that holds the epoch once the result of a row is complete.
  MSCCLPP_HOST_DEVICE std::size_t readyOffset(std::uint64_t epoch, std::size_t row) const {
    return readyStart() + ((epoch % 2) * rows + row) * sizeof(std::uint64_t);
  }
  /// The 32-bit word that counts the parts of a block that rank `from` has published. In three sets: the reader clears
  /// that of the call before, which no peer uses again before the call after the next.
  MSCCLPP_HOST_DEVICE std::size_t arrivalOffset(std::uint64_t epoch, std::size_t block, int from) const {
    const std::size_t index = delivery == RowDelivery::Redundant ? block : Owners::index(block, ranks);
    return arrivalSetOffset(epoch) +
           (index * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(from)) * sizeof(std::uint32_t);
  }
  MSCCLPP_HOST_DEVICE std::size_t arrivalSetOffset(std::uint64_t epoch) const {
    return arrivalsStart() + (epoch % 3) * arrivalWords() * sizeof(std::uint32_t);
  }
  /// Words of a set.
  MSCCLPP_HOST_DEVICE std::size_t arrivalWords() const {
    return roundUp(reducedBlocks() * static_cast<std::size_t>(ranks), 32);
  }
  /// The 64-bit word with the last call that rank `from` has entered.
  MSCCLPP_HOST_DEVICE std::size_t entryOffset(int from) const {
    return arrivalsStart() + 3 * arrivalWords() * sizeof(std::uint32_t) +
           static_cast<std::size_t>(from) * sizeof(std::uint64_t);
  }
  /// The words of rank `from` about its call (collective/call_check.hpp).
  MSCCLPP_HOST_DEVICE std::size_t callOffset(int from) const {
    return entryOffset(ranks) + static_cast<std::size_t>(from) * CallWords::bytes;
  }
  MSCCLPP_HOST_DEVICE std::size_t windowBytes() const { return roundUp(callOffset(ranks), 128); }

 private:
  MSCCLPP_HOST_DEVICE bool hasResults() const { return delivery == RowDelivery::ToAll; }
  MSCCLPP_HOST_DEVICE std::size_t resultsStart() const {
    return roundUp(
        2 * static_cast<std::size_t>(ranks) * reducedBlocks() * static_cast<std::size_t>(rowsPerBlock) * rowBytes(),
        128);
  }
  MSCCLPP_HOST_DEVICE std::size_t readyStart() const {
    return roundUp(resultsStart() + (hasResults() ? 2 * rows * resultBytes : 0), 128);
  }
  MSCCLPP_HOST_DEVICE std::size_t arrivalsStart() const {
    return roundUp(readyStart() + (hasResults() ? 2 * rows * sizeof(std::uint64_t) : 0), 128);
  }
};

}  // namespace mscclpp
