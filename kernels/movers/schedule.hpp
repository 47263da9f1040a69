// The schedule of a collective that moves bytes by copies into the outputs of the peers: which rank copies which part
// to which rank in which step. Nothing here copies or waits.
#pragma once

#include <algorithm>
#include <cstddef>

#include "mscclpp/basic/partition.hpp"
#include "mscclpp/kernels/collective_call.hpp"

namespace mscclpp::kernels {

/// A copy by one rank into the output of `to`. Offsets and sizes in bytes.
struct Transfer {
  int to;                   ///< the rank whose output is written
  bool fromOutput;          ///< what is copied lies in this rank's output, otherwise in its input
  std::size_t source;       ///< offset in there
  std::size_t destination;  ///< offset in the output of `to`
  std::size_t bytes;        ///< 0: no copy
};

/// The copies of all ranks, in steps. In a step a rank starts at most one copy, and no rank's output is written by two:
/// copies that arrive at a GPU at once from several others are slower than one after the other. Every byte of an output
/// is written once.
struct CopySchedule {
  CollectiveType collective;  ///< AllGather, AllToAll, Broadcast, Gather or Scatter
  int ranks;
  int root;                ///< of Broadcast, Gather and Scatter
  std::size_t bytes;       ///< of a part: what one rank has for one other. Broadcast: of the message
  std::size_t pieceBytes;  ///< the longest copy of AllGather, AllToAll and Broadcast to another rank; 0: no limit

  /// Whether the schedule has copies for such a collective.
  static constexpr bool supports(CollectiveType collective) {
    return collective == CollectiveType::AllGather || collective == CollectiveType::AllToAll ||
           collective == CollectiveType::Broadcast || collective == CollectiveType::Gather ||
           collective == CollectiveType::Scatter;
  }

  /// The number of steps, the same on all ranks.
  constexpr std::size_t steps() const {
    if (ranks < 2 || bytes == 0) return 0;
    const std::size_t peers = static_cast<std::size_t>(ranks) - 1;
    if (isPermuting()) return pieces() * peers;
    if (collective == CollectiveType::Broadcast) return pieces() + peers - 1;
    return peers;
  }

  /// Whether all ranks must have completed a step before one starts the next. Not in a Scatter, in which only the root
  /// copies.
  constexpr bool hasBarriersBetweenSteps() const { return collective != CollectiveType::Scatter; }

  /// What `rank` copies to another rank in a step in [0, steps()).
  constexpr Transfer transfer(int rank, std::size_t step) const {
    const std::size_t own = static_cast<std::size_t>(rank);
    if (isPermuting()) {
      const std::size_t peers = static_cast<std::size_t>(ranks) - 1;
      const int to = wrap(rank + 1 + static_cast<int>(step % peers));
      const Range piece = steppedPart(bytes, longestCopy(), step / peers);
      return {to, false, (isAllToAll() ? static_cast<std::size_t>(to) * bytes : 0) + piece.begin,
              own * bytes + piece.begin, piece.size()};
    }
    const int distance = wrap(rank - root + ranks);
    const std::size_t hops = static_cast<std::size_t>(distance);
    if (collective == CollectiveType::Broadcast) {
      // A chain from the root, so that its link carries each piece once: it is a pipeline with a hop for each step.
      if (distance == ranks - 1 || step < hops) return none(rank);
      const Range piece = steppedPart(bytes, longestCopy(), step - hops);
      return {wrap(rank + 1), distance != 0, piece.begin, piece.begin, piece.size()};
    }
    if (collective == CollectiveType::Gather) {
      return hops == step + 1 ? Transfer{root, false, 0, own * bytes, bytes} : none(rank);
    }
    if (distance != 0) return none(rank);
    const int to = wrap(root + 1 + static_cast<int>(step));
    return {to, false, static_cast<std::size_t>(to) * bytes, 0, bytes};
  }

  /// What `rank` copies from its input to its own output. It depends on no step.
  constexpr Transfer localCopy(int rank) const {
    const std::size_t part = static_cast<std::size_t>(rank) * bytes;
    if (hasRoot(collective) && rank != root) return none(rank);
    switch (collective) {
      case CollectiveType::AllGather:
      case CollectiveType::Gather:
        return {rank, false, 0, part, bytes};
      case CollectiveType::AllToAll:
        return {rank, false, part, part, bytes};
      case CollectiveType::Scatter:
        return {rank, false, part, 0, bytes};
      default:
        return {rank, false, 0, 0, bytes};
    }
  }

  /// Whether `rank` copies from its input, and whether something is copied into its output.
  constexpr bool hasInput(int rank) const {
    return rank == root || !(collective == CollectiveType::Broadcast || collective == CollectiveType::Scatter);
  }
  constexpr bool hasOutput(int rank) const { return rank == root || collective != CollectiveType::Gather; }

 private:
  constexpr bool isAllToAll() const { return collective == CollectiveType::AllToAll; }
  constexpr bool isPermuting() const { return isAllToAll() || collective == CollectiveType::AllGather; }
  /// Two ranks have nothing to alternate: one copy.
  constexpr std::size_t longestCopy() const {
    return pieceBytes == 0 || ranks == 2 ? bytes : std::min(pieceBytes, bytes);
  }
  constexpr std::size_t pieces() const { return ceilDivide(bytes, longestCopy()); }
  constexpr int wrap(int rank) const { return rank >= ranks ? rank - ranks : rank; }
  static constexpr Transfer none(int rank) { return {rank, false, 0, 0, 0}; }
};

}  // namespace mscclpp::kernels
