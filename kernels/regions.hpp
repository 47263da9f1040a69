// The scratch of the compiled collectives: one region of a window for all algorithms whose scratch has the same type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/collective/tile_rings.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "region_layout.hpp"

namespace mscclpp::kernels {

/// A part of the window and its epochs. Calls of different collectives may follow each other on it, since the type of
/// the scratch implies the protocol and the rule by which slots are reused.
struct Region {
  std::size_t capacity;    ///< bytes of the longest message that fits; packet algorithms only
  PipelineShape pipeline;  ///< pipelined algorithms only
  std::size_t offset;      ///< in the window
  std::size_t bytes;
  std::vector<std::byte*> window;
  std::shared_ptr<void> epochs;
};

class Regions {
 public:
  /// Collective: every rank of the communicator calls it, with the same arguments. maxBlocks: of a launch on a GPU.
  Regions(Communicator& communicator, DeviceType deviceType, const Backend& backend,
          const std::vector<AlgorithmInUse>& inUse, int maxBlocks);

  /// The region of an algorithm; null if it is not in use.
  const Region* find(std::size_t algorithm) const {
    const int index = layout_.indices[algorithm];
    return index < 0 ? nullptr : &regions_[static_cast<std::size_t>(index)];
  }
  /// The window that has all regions: an address per rank.
  const std::vector<std::byte*>& window() const { return window_; }
  /// Of this rank, in bytes: of the window and the epochs.
  std::size_t memoryBytes() const { return memory_->bytes() + regions_.size() * epochWords * sizeof(std::uint64_t); }
  /// For tests: sets the epoch of the next call of every region and pair of ranks, on this rank; 0, before any call:
  /// that of the first call.
  void setEpoch(std::uint64_t epoch);

 private:
  std::byte* local(const Region& region) const { return region.window[static_cast<std::size_t>(rank_)]; }

  const Backend& backend_;
  int rank_;
  RegionLayout layout_;
  std::vector<Region> regions_;
  std::unique_ptr<SymmetricMemory> memory_;
  std::vector<std::byte*> window_;
};

}  // namespace mscclpp::kernels
