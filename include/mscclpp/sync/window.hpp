// A window: memory of the same layout on every rank of a team, each rank's copy mapped by all the others.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// How many ranks a team whose size is known only at run time may have.
inline constexpr int maxTeamSize = 32;

/// The base addresses of a window, as this rank maps them. Travels by value in a kernel's parameters, so that an address costs no memory load.
template <int Ranks = 0>
struct Window {
  std::byte* base[Ranks > 0 ? Ranks : maxTeamSize];

  /// The address of `offset` bytes into rank's copy.
  MSCCLPP_INLINE std::byte* at(int rank, std::size_t offset = 0) const { return base[rank] + offset; }
  /// The same window narrowed to what starts `offset` bytes into it.
  MSCCLPP_HOST_DEVICE Window from(std::size_t offset) const {
    Window result = *this;
    for (auto& b : result.base) b = b == nullptr ? nullptr : b + offset;
    return result;
  }
};

/// The window whose copies begin at these addresses, one a rank.
template <int Ranks = 0>
MSCCLPP_HOST_DEVICE Window<Ranks> windowAt(std::byte* const* bases, int ranks) {
  Window<Ranks> window{};
  for (int r = 0; r < ranks; ++r) window.base[r] = bases[r];
  return window;
}

}  // namespace mscclpp
