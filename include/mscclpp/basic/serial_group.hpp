// Groups of exactly one CPU thread, for a CPU rank that runs collectives in its calling thread.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::cpu {

/// One thread, as a block and as a warp of one lane.
struct SerialGroup {
  static constexpr int width = 1;
  static constexpr bool lockstepStores = false;

  MSCCLPP_INLINE int rank() const { return 0; }
  MSCCLPP_INLINE int size() const { return 1; }
  MSCCLPP_INLINE void sync() const {}
  MSCCLPP_INLINE bool syncAny(bool vote) const { return vote; }
  MSCCLPP_INLINE std::uint32_t shuffle(std::uint32_t value, int /*source*/) const { return value; }
  MSCCLPP_INLINE bool all(bool predicate) const { return predicate; }
  MSCCLPP_INLINE bool any(bool predicate) const { return predicate; }
  MSCCLPP_INLINE std::uint32_t ballot(bool predicate) const { return predicate ? 1u : 0u; }
};
static_assert(WarpGroup<SerialGroup> && VotingGroup<SerialGroup>);

/// A grid of one block of one thread.
struct SerialGrid {
  MSCCLPP_INLINE int blockIndex() const { return 0; }
  MSCCLPP_INLINE int blockCount() const { return 1; }
  MSCCLPP_INLINE SerialGroup block() const { return {}; }
  MSCCLPP_INLINE SerialGroup warp() const { return {}; }
  MSCCLPP_INLINE int warpIndex() const { return 0; }
  MSCCLPP_INLINE int warpCount() const { return 1; }
};
static_assert(Grid<SerialGrid>);

}  // namespace mscclpp::cpu
