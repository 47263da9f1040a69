// A window: memory of the same layout on every rank of a team, which every other rank has mapped.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The largest size of a team whose size is known only at run time. A kernel takes its window by value, so this
/// bounds the size of its parameters.
inline constexpr int maxTeamSize = 64;

/// The base addresses of a window in this rank's address space. Passed by value in a kernel's parameters, so that an
/// address is read from constant memory. Ranks: the size of the team, or 0 if it is known only at run time; the two are
/// different types, and window<Ranks>() of SymmetricMemory and of RegisteredBuffer makes either.
template <int Ranks = 0>
struct Window {
  std::byte* base[Ranks > 0 ? Ranks : maxTeamSize];

  /// The address at `offset` bytes in the memory of `rank`.
  MSCCLPP_INLINE std::byte* at(int rank, std::size_t offset = 0) const { return base[rank] + offset; }
  /// The window that starts at `offset` bytes in this one.
  MSCCLPP_HOST_DEVICE Window subWindow(std::size_t offset) const {
    Window result = *this;
    for (auto& b : result.base) b = b == nullptr ? nullptr : b + offset;
    return result;
  }

  /// A window is not converted: the number of ranks of its type would not be checked.
  template <int OtherRanks>
  MSCCLPP_HOST_DEVICE operator Window<OtherRanks>() const {
    static_assert(OtherRanks == Ranks,
                  "a Window of one number of ranks is not a Window of another: make it by makeWindow<Ranks>(bases, "
                  "ranks) or SymmetricMemory::window<Ranks>(), with the Ranks of the collective's configuration");
    return {};
  }
};

/// The window with these base addresses, one per rank.
template <int Ranks = 0>
MSCCLPP_HOST_DEVICE Window<Ranks> makeWindow(std::byte* const* bases, int ranks) {
  Window<Ranks> window{};
  for (int r = 0; r < ranks; ++r) window.base[r] = bases[r];
  return window;
}

}  // namespace mscclpp
