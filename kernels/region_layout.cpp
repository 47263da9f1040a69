#include "region_layout.hpp"

#include <algorithm>

#include "kernel_lookup.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/slot_reuse.hpp"
#include "tuning.hpp"

namespace mscclpp::kernels {

namespace {

constexpr std::size_t regionAlignment = 4096;

/// Calls f with the scratch of an algorithm, which is the same for all element types and operators, for messages of up
/// to `capacity` bytes.
template <class F>
void visitScratch(std::size_t algorithm, std::size_t capacity, int ranks, const PipelineShape& pipeline, const F& f) {
  detail::visitIndex(algorithm, [&]<std::size_t i>() {
    using Example = CollectiveOf<i, 0, float>;
    f(Example::scratchFor(capacity / sizeof(float), ranks, pipeline));
  });
}

/// Sets what tests need to set the epochs.
template <class Scratch>
void addCounters(RegionLayout::Region& region, const Scratch& scratch, [[maybe_unused]] int ranks) {
  if constexpr (requires { scratch.countersOffset(); }) {
    region.hasCredits = Scratch::reuse == SlotReuse::ByCredits;
    region.counters = {scratch.countersOffset()};
    region.countersBytes = scratch.countersBytes();
  } else if constexpr (requires { scratch.pair; }) {
    region.hasCredits = true;
    const auto addPart = [&](std::size_t part) {
      region.pairEpochs.push_back(part + Scratch::epochsInPart);
      if constexpr (requires { scratch.pair.countersOffset(); }) {
        region.counters.push_back(part + Scratch::pairInPart + scratch.pair.countersOffset());
        region.countersBytes = scratch.pair.countersBytes();
      } else {
        // Credits: a call sends before it gives credits.
        region.counters.push_back(part + Scratch::pairInPart + scratch.pair.creditOffset(0));
        region.countersBytes = scratch.pair.creditOffset(2) - scratch.pair.creditOffset(0);
      }
    };
    for (int receiver = 0; receiver < ranks; ++receiver) addPart(scratch.senderOffset(receiver));
    for (int sender = 1; sender < ranks; ++sender) addPart(scratch.receiverOffset(sender, 0));  // at the same on all
  }
}

}  // namespace

RegionLayout layOutRegions(const std::vector<AlgorithmInUse>& inUse, DeviceType deviceType, int ranks, int maxBlocks) {
  const auto pipelineOf = [&](std::size_t algorithm) {
    const bool onGpu = deviceType == DeviceType::GPU;
    return (onGpu ? gpuPipeline(algorithmTable[algorithm], ranks, maxBlocks) : cpuPipeline(algorithmTable[algorithm]))
        .shape;
  };
  RegionLayout layout{{}, std::vector<int>(algorithmTable.size(), -1), 0};
  auto& regions = layout.regions;
  for (const AlgorithmInUse& each : inUse) {
    const PipelineShape pipeline = pipelineOf(each.algorithm);
    visitScratch(each.algorithm, each.maxBytes, ranks, pipeline, [&]<class Scratch>(const Scratch&) {
      constexpr std::uint32_t type = mscclpp::detail::typeNumber<Scratch>();
      const auto same = std::find_if(regions.begin(), regions.end(), [&](const auto& r) { return r.type == type; });
      const auto index = same - regions.begin();
      layout.indices[each.algorithm] = static_cast<int>(index);
      if (same == regions.end()) {
        regions.push_back({type, 0, pipeline, 0, 0, Scratch::initialByte, Scratch::firstEpoch, false, {}, 0, {}});
      }
      // Whole packs, so that elements of every size give the same scratch.
      RegionLayout::Region& region = regions[static_cast<std::size_t>(index)];
      region.capacity = std::max(region.capacity, roundUp(each.maxBytes, sizeof(Word128)));
    });
  }
  for (std::size_t i = 0; i < regions.size(); ++i) {
    RegionLayout::Region& region = regions[i];
    const auto first = std::find(layout.indices.begin(), layout.indices.end(), static_cast<int>(i));
    const auto algorithm = static_cast<std::size_t>(first - layout.indices.begin());
    visitScratch(algorithm, region.capacity, ranks, region.pipeline, [&](const auto& scratch) {
      region.offset = layout.bytes;
      region.bytes = scratch.windowBytes();
      addCounters(region, scratch, ranks);
    });
    layout.bytes += roundUp(region.bytes, regionAlignment);
  }
  return layout;
}

}  // namespace mscclpp::kernels
