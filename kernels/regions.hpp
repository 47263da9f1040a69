// The scratch of the compiled collectives: one region of a window for all algorithms whose scratch has the same type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms.hpp"
#include "backend.hpp"
#include "mscclpp/collective/tile_rings.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"

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
  /// Collective: every rank of the communicator calls it, with the same arguments. algorithmsInUse: indices in
  /// algorithms. maxBlocks: of a launch on a GPU.
  Regions(Communicator& communicator, DeviceType deviceType, const Backend& backend,
          const std::vector<std::size_t>& algorithmsInUse, int maxBlocks);

  /// The region of an algorithm; null if it is not in use.
  const Region* find(std::size_t algorithm) const {
    const int index = indices_[algorithm];
    return index < 0 ? nullptr : &regions_[static_cast<std::size_t>(index)];
  }
  /// The window that has all regions: an address per rank.
  const std::vector<std::byte*>& window() const { return window_; }
  /// For tests: sets the epoch of the next call of every region and pair of ranks, on this rank; 0, before any call:
  /// that of the first call.
  void setEpoch(std::uint64_t epoch);

 private:
  /// What does not depend on the rank.
  struct Layout {
    std::uint32_t type;  ///< number of the scratch's type
    int initialByte;
    std::uint64_t firstEpoch;
    bool hasCredits;
    std::vector<std::size_t> counters;    ///< offsets in the region: counters of pipelines, credits of pairs
    std::size_t countersBytes;            ///< at each of these offsets
    std::vector<std::size_t> pairEpochs;  ///< offsets of the epochs of pairs in the region
  };

  std::byte* local(const Region& region) const { return region.window[static_cast<std::size_t>(rank_)]; }

  const Backend& backend_;
  int rank_;
  std::vector<Region> regions_;
  std::vector<Layout> layouts_;  ///< of the regions
  std::vector<int> indices_;     ///< of the algorithms' regions; -1: none
  std::unique_ptr<SymmetricMemory> memory_;
  std::vector<std::byte*> window_;
};

}  // namespace mscclpp::kernels
