// One memory per rank, each mapped by this rank: what SymmetricMemory and RegisteredBuffer have in common.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "mscclpp/host/transport/registered_memory.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp::detail {

class GroupSetup;

class MemoryOfRanks {
 public:
  /// Empty: no ranks.
  MemoryOfRanks() = default;
  /// Maps what each rank has serialised; a rank whose bytes are empty has no memory. `own` is that of this rank, which
  /// is not mapped again. `name` begins the messages of errors. Throws what deserialising throws, with the rank
  /// prepended to the message of an Error. Not collective: the ranks agree on the result afterwards.
  MemoryOfRanks(const GroupSetup& setup, std::string name, int rank, const RegisteredMemory& own,
                const std::vector<std::vector<char>>& serialized);

  int rank() const noexcept { return rank_; }
  int nRanks() const noexcept { return static_cast<int>(parts_.size()); }
  const RegisteredMemory& own() const noexcept { return parts_[static_cast<std::size_t>(rank_)]; }
  /// Throws Error(InvalidUsage) if there is no such rank.
  const RegisteredMemory& at(int rank) const;
  /// As SymmetricMemory::window.
  template <int Ranks>
  Window<Ranks> window() const {
    Window<Ranks> window{};
    fillWindow(window.base, Ranks);
    return window;
  }

 private:
  void fillWindow(std::byte** bases, int ranks) const;

  std::string name_;
  int rank_ = 0;
  std::vector<RegisteredMemory> parts_;
};

}  // namespace mscclpp::detail
