// The ranks of a collective, and the order in which each of them addresses its peers.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The index of a rank among those that are not `rank`, in increasing order: where `rank` keeps what it has of `peer`.
/// peer == rank gives an index that is at most the number of the others, and means nothing.
MSCCLPP_HOST_DEVICE constexpr int peerIndex(int rank, int peer) {
  return peer <= rank ? peer : peer - 1;
}

/// The ranks of a collective. Ranks > 0: their number, fixed at compile time, so that loops over peers are unrolled; 0:
/// known at run time.
template <int Ranks = 0>
class Team {
 public:
  Team() = default;
  MSCCLPP_HOST_DEVICE Team(int rank, int size) : rank_(rank), size_(size) {}

  MSCCLPP_INLINE int rank() const { return rank_; }
  MSCCLPP_INLINE int size() const {
    if constexpr (Ranks > 0) {
      return Ranks;
    } else {
      return size_;
    }
  }
  /// The i-th other rank, i in [0, size - 1), starting after this one: no two ranks address the same peer in the same
  /// step.
  MSCCLPP_INLINE int peer(int i) const { return wrap(rank_ + 1 + i); }
  /// The same order, starting `rotation` peers later, rotation in [0, size - 1). Blocks with different rotations spread
  /// their traffic over the links.
  MSCCLPP_INLINE int peer(int i, int rotation) const {
    const int step = i + rotation;
    return peer(step >= size() - 1 ? step - (size() - 1) : step);
  }
  /// The rotation for block n; 0 in a team of one.
  MSCCLPP_INLINE int rotation(std::uint32_t n) const {
    return size() > 1 ? static_cast<int>(n % static_cast<std::uint32_t>(size() - 1)) : 0;
  }

 private:
  MSCCLPP_INLINE int wrap(int rank) const { return rank >= size() ? rank - size() : rank; }

  int rank_;
  int size_;
};
static_assert(TeamLike<Team<>> && TeamLike<Team<8>>);

}  // namespace mscclpp
