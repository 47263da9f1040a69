// The same amount of memory on every rank, mapped by all: what the scratch of collectives is made of.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "mscclpp/host/device.hpp"
#include "mscclpp/host/registered_memory.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp {

class Communicator;

/// Memory of its own on each rank, and the mappings of all the others'. For ranks of one host. When a rank destroys
/// it, peers that still use that rank's part read and write memory in vain; so synchronise first.
class SymmetricMemory {
 public:
  /// Collective: every rank of the communicator calls it with the same arguments, and no rank returns before all have
  /// mapped everything. The memory is zero-filled, and lies on the current device of each rank or on the CPU.
  /// Throws on every rank alike if the sizes or device types differ, or memory or a mapping fails on any of them, and
  /// says which and why; also what the bootstrap throws for a rank that never comes.
  SymmetricMemory(Communicator& communicator, std::size_t bytes, DeviceType where);
  SymmetricMemory(SymmetricMemory&&) noexcept = default;
  SymmetricMemory& operator=(SymmetricMemory&&) noexcept = default;

  int rank() const noexcept { return rank_; }
  int nRanks() const noexcept { return static_cast<int>(parts_.size()); }
  /// Of each rank's part, as asked for.
  std::size_t bytes() const noexcept { return bytes_; }

  /// This rank's part.
  void* local() const noexcept { return parts_[static_cast<std::size_t>(rank_)].data(); }
  /// The part of any rank, usable here; peer(rank()) == local(). Throws Error(InvalidUsage) if there is no such rank.
  void* peer(int rank) const { return memory(rank).data(); }
  /// The same as a registration, for connections and channels.
  const RegisteredMemory& memory(int rank) const;
  /// The parts of all ranks as collectives take them. Throws Error(InvalidUsage) for more ranks than a window has.
  Window<> window() const;

 private:
  int rank_;
  std::size_t bytes_;
  std::shared_ptr<void> storage_;
  std::vector<RegisteredMemory> parts_;
};

}  // namespace mscclpp
