// Which rows of other ranks have arrived, as the loads of a GEMM need to know it.
#pragma once

#include <cstdint>

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::detail {

/// Waits for the operands of tiles, by columns of parts of a row gather. Scratch: a MatrixGather. All functions are
/// called by all lanes of a warp.
template <int Ranks, class Scratch>
class RowArrivals {
 public:
  using Args = CollectiveArgs<Ranks, Scratch>;
  static_assert(Ranks <= 32, "complete_ has a bit for each");

  /// rows: of a tile; their parts have no more words than a warp has lanes.
  MSCCLPP_DEVICE __forceinline__ RowArrivals(const Args& args, std::uint64_t epoch, std::uint32_t rows)
      : args_(args), epoch_(epoch), tileRows_(rows) {}

  /// Waits until the columns of part `first` of all rows of other ranks in a row of tiles have arrived. Returns of how
  /// many parts, this one and those behind it, they have. After a failure that is all of them: a call ends within one
  /// time limit, however many tiles it has, and goes on with meaningless data.
  MSCCLPP_DEVICE __forceinline__ std::uint32_t await(std::uint32_t tile, std::uint32_t first) {
    // Divisions of 32 bits: those of 64 are slow on a GPU.
    const Scratch& scratch = args_.scratch;
    std::uint32_t parts = static_cast<std::uint32_t>(scratch.columnParts()) - first;
    if (hasFailed_) return parts;
    const auto count = static_cast<std::uint32_t>(args_.count), slice = static_cast<std::uint32_t>(scratch.slice);
    const auto perBlock = static_cast<std::uint32_t>(scratch.rowsPerBlock);
    const auto own = static_cast<std::uint32_t>(args_.team.rank());
    const std::uint32_t end = (tile + 1) * tileRows_ < count ? (tile + 1) * tileRows_ : count;
    auto wait = args_.wait;
    MSCCLPP_NO_UNROLL
    for (std::uint32_t row = tile * tileRows_; row < end;) {
      const std::uint32_t from = row / slice, inSlice = row - from * slice, block = inSlice / perBlock;
      if (from != own && !isComplete(from)) parts = awaitBlock(from, block, first, parts, wait);
      row = from * slice + ((block + 1) * perBlock < slice ? (block + 1) * perBlock : slice);
    }
    hasFailed_ = gpu::WarpTile<>().any(hasFailed(wait));
    if (hasFailed_) args_.epochs.stop(epoch_);
    return parts;
  }

 private:
  /// Whether all rows of a rank have arrived: then no more looks are needed.
  MSCCLPP_DEVICE __forceinline__ bool isComplete(std::uint32_t from) {
    if ((complete_ >> from & 1u) != 0) return true;
    const auto* const word = reinterpret_cast<const std::uint64_t*>(
        args_.window.at(args_.team.rank(), args_.scratch.completeOffset(static_cast<int>(from))));
    if (!gpu::WarpTile<>().all(arch::load<arch::Order::Relaxed, arch::Scope::System>(word) == epoch_)) return false;
    arch::load<arch::Order::Acquire, arch::Scope::System>(word);
    complete_ |= 1u << from;
    return true;
  }
  /// As await() for a block of rows, of at most `most` parts.
  template <class Wait>
  MSCCLPP_DEVICE __forceinline__ std::uint32_t awaitBlock(std::uint32_t from, std::uint32_t block, std::uint32_t first,
                                                          std::uint32_t most, Wait& wait) const {
    const gpu::WarpTile<> warp;
    const Scratch& scratch = args_.scratch;
    const int own = args_.team.rank(), rowParts = scratch.rowParts();
    const int part = scratch.partAt(static_cast<int>(first), 0), count = static_cast<int>(most) * rowParts;
    const bool hasWord = warp.rank() < count;
    const auto* const word = reinterpret_cast<const std::uint64_t*>(
                                 args_.window.at(own, scratch.readyOffset(own, static_cast<int>(from), block, part))) +
                             warp.rank();
    const WaitSite site{WaitOperation::Progress, own, static_cast<int>(from),
                        static_cast<std::uint32_t>(gpu::Grid{}.blockIndex()), epoch_};
    int found = 0;  // words that have arrived, of those of all lanes
    wait.untilCollective(warp, site, [&](std::uint64_t& seen) {
      seen = hasWord ? arch::load<arch::Order::Relaxed, arch::Scope::System>(word) : epoch_;
      const std::uint32_t missing = warp.ballot(seen != epoch_);
      found = missing == 0 ? warp.size() : arch::countBits((missing & (0u - missing)) - 1);
      return found >= rowParts;
    });
    // What the last poll has found is acquired once: an acquire takes longer than a poll.
    if (hasWord) arch::load<arch::Order::Acquire, arch::Scope::System>(word);
    const int parts = (found < count ? found : count) / rowParts;
    return parts > 0 ? static_cast<std::uint32_t>(parts) : 1;  // after a failure
  }

  const Args& args_;
  const std::uint64_t epoch_;
  const std::uint32_t tileRows_;
  bool hasFailed_ = false;      ///< a wait
  std::uint32_t complete_ = 0;  ///< ranks of which all rows have arrived, as bits
};

}  // namespace mscclpp::detail
