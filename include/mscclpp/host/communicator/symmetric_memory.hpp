// The same amount of memory on every rank, mapped by all ranks; collectives use it as scratch.
#pragma once

#include <cstddef>
#include <memory>

#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/communicator/memory_of_ranks.hpp"
#include "mscclpp/host/transport/registered_memory.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp {

class Communicator;

/// Each rank's own memory and the mappings of all others'. For ranks of one host. When a rank destroys it, peers that
/// still use that rank's part access memory that is no longer shared; so synchronise first.
class SymmetricMemory {
 public:
  /// Collective: every rank of the communicator calls it with the same arguments, and no rank returns before all have
  /// mapped everything. The memory is zero-filled, and lies on the current device of each rank or on the CPU. If the
  /// sizes or device types differ, or an allocation or mapping fails on any rank, every rank throws an error that names
  /// the rank and the cause; also throws what the bootstrap throws for a rank that does not arrive.
  SymmetricMemory(Communicator& communicator, std::size_t bytes, DeviceType where);
  SymmetricMemory(SymmetricMemory&&) noexcept = default;
  SymmetricMemory& operator=(SymmetricMemory&&) noexcept = default;

  int rank() const noexcept { return parts_.rank(); }
  int nRanks() const noexcept { return parts_.nRanks(); }
  /// The size of each rank's part, as requested.
  std::size_t bytes() const noexcept { return bytes_; }

  /// This rank's part.
  void* local() const noexcept { return parts_.own().data(); }
  /// The part of any rank, mapped here; peer(rank()) == local(). Throws Error(InvalidUsage) if there is no such rank.
  void* peer(int rank) const { return memory(rank).data(); }
  /// The same as a registration, for connections and channels.
  const RegisteredMemory& memory(int rank) const { return parts_.at(rank); }
  /// The parts of all ranks in the form that collectives take. Ranks: the number of ranks, or 0 for a window whose
  /// number of ranks is known only at run time. Throws Error(InvalidUsage) if there are more ranks than a window can
  /// hold, or another number than Ranks.
  template <int Ranks = 0>
  Window<Ranks> window() const {
    return parts_.window<Ranks>();
  }

 private:
  std::size_t bytes_;
  std::shared_ptr<void> storage_;
  detail::MemoryOfRanks parts_;
};

}  // namespace mscclpp
