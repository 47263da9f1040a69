// The layout of the scratch of the compiled collectives: a region for all algorithms whose scratch has the same type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithms.hpp"
#include "mscclpp/collective/tile_rings.hpp"
#include "mscclpp/host/base/device.hpp"

namespace mscclpp::kernels {

/// An algorithm that is set up, and the longest message that it is set up for.
struct AlgorithmInUse {
  std::size_t algorithm;  ///< an index in algorithmTable, not of copy engines
  std::size_t maxBytes;   ///< at most the algorithm's; noLimit: any, if it takes any
};

/// The regions of a window, one after another, the same on all ranks.
struct RegionLayout {
  struct Region {
    std::uint32_t type;      ///< number of the scratch's type
    std::size_t capacity;    ///< bytes of the longest message that fits; packet algorithms only
    PipelineShape pipeline;  ///< pipelined algorithms only
    std::size_t offset;      ///< in the window
    std::size_t bytes;
    int initialByte;
    std::uint64_t firstEpoch;
    bool hasCredits;
    std::vector<std::size_t> counters;    ///< offsets in the region: counters of pipelines, credits of pairs
    std::size_t countersBytes;            ///< at each of these offsets
    std::vector<std::size_t> pairEpochs;  ///< offsets of the epochs of pairs in the region; their first call sets them
  };

  std::vector<Region> regions;
  std::vector<int> indices;  ///< of the regions of all algorithms; -1: not in use
  std::size_t bytes;         ///< of the window
};

/// maxBlocks: of a launch on a GPU.
RegionLayout layOutRegions(const std::vector<AlgorithmInUse>& inUse, DeviceType deviceType, int ranks, int maxBlocks);

}  // namespace mscclpp::kernels
