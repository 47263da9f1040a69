// Groups of cooperative_groups as groups of this library. Includes nothing of CUDA: the user's kernel includes
// <cooperative_groups.h>.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/config.hpp"

#if defined(__CUDACC__)

namespace mscclpp::gpu {

/// A ThreadGroup made of any group of cooperative_groups: a block, a tile, a cluster, coalesced threads, or a type of
/// the user's with thread_rank(), num_threads() and sync(). Holds a copy of the group. All threads of the group make
/// the calls that take it.
///
///     channel.put(gpu::CooperativeGroup(cooperative_groups::this_thread_block()), to, from, bytes);
template <class Group>
class CooperativeGroup {
 public:
  MSCCLPP_DEVICE __forceinline__ explicit CooperativeGroup(const Group& group) : group_(group) {}
  MSCCLPP_DEVICE __forceinline__ int rank() const { return static_cast<int>(group_.thread_rank()); }
  MSCCLPP_DEVICE __forceinline__ int size() const { return static_cast<int>(group_.num_threads()); }
  MSCCLPP_DEVICE __forceinline__ void sync() const { group_.sync(); }

 protected:
  Group group_;
};

/// A WarpGroup made of a tile of at most 32 threads, whose number is a constant of its type:
///
///     gpu::CooperativeWarp(cooperative_groups::tiled_partition<16>(block))
template <class Tile>
class CooperativeWarp : public CooperativeGroup<Tile> {
 public:
  static constexpr int width = static_cast<int>(Tile::num_threads());
  static constexpr bool lockstepStores = width == 32;
  static_assert(width <= 32, "a WarpGroup is a part of a hardware warp: use a tile of at most 32 threads");

  MSCCLPP_DEVICE __forceinline__ explicit CooperativeWarp(const Tile& tile) : CooperativeGroup<Tile>(tile) {}
  MSCCLPP_DEVICE __forceinline__ std::uint32_t shuffle(std::uint32_t value, int source) const {
    return this->group_.shfl(value, source);
  }
  MSCCLPP_DEVICE __forceinline__ bool all(bool predicate) const { return this->group_.all(predicate) != 0; }
  MSCCLPP_DEVICE __forceinline__ bool any(bool predicate) const { return this->group_.any(predicate) != 0; }
  MSCCLPP_DEVICE __forceinline__ std::uint32_t ballot(bool predicate) const { return this->group_.ballot(predicate); }
};

}  // namespace mscclpp::gpu

#endif  // __CUDACC__
