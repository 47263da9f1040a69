#include "regions.hpp"

#include "host/bootstrap/group_agreement.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp::kernels {

Regions::Regions(Communicator& communicator, DeviceType deviceType, const Backend& backend,
                 const std::vector<AlgorithmInUse>& inUse, int maxBlocks)
    : backend_(backend),
      rank_(communicator.bootstrap()->getRank()),
      layout_(layOutRegions(inUse, deviceType, communicator.bootstrap()->getNranks(), maxBlocks)) {
  const int ranks = communicator.bootstrap()->getNranks();
  memory_ = std::make_unique<SymmetricMemory>(communicator, layout_.bytes, deviceType);
  for (int r = 0; r < ranks; ++r) window_.push_back(static_cast<std::byte*>(memory_->peer(r)));
  // Also a barrier: no rank may send before every window is initialised.
  const mscclpp::detail::GroupAgreement agreement(*communicator.bootstrap(), "Collectives");
  agreement.runStep("initialise its scratch and epochs", [&] {
    for (const RegionLayout::Region& layout : layout_.regions) {
      Region region{layout.capacity, layout.pipeline, layout.offset, layout.bytes, {}, nullptr};
      for (std::byte* const base : window_) region.window.push_back(base + region.offset);
      // The memory is zero-filled: pages that no call uses stay untouched.
      if (layout.initialByte != 0) backend_.fill(local(region), layout.initialByte, region.bytes);
      region.epochs = backend_.allocate(epochWords * sizeof(std::uint64_t));
      regions_.push_back(std::move(region));
    }
    setEpoch(0);
    return std::vector<char>();
  });
}

void Regions::setEpoch(std::uint64_t epoch) {
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    const RegionLayout::Region& layout = layout_.regions[i];
    const std::uint64_t first = epoch == 0 ? layout.firstEpoch : epoch;
    const std::vector<std::uint64_t> words(epochWords, first);
    backend_.upload(regions_[i].epochs.get(), words.data(), words.size() * sizeof(std::uint64_t));
    // The counters of a pipeline never decrease: they start at the epoch or, where a counter at the epoch says that its
    // rank has entered the call, before it.
    const std::uint64_t counter = layout.hasCredits ? first - 1 : first;
    const std::vector<std::uint64_t> counters(layout.countersBytes / sizeof(std::uint64_t), counter);
    for (const std::size_t offset : layout.counters) {
      if (counter == 0) break;  // the memory is zero-filled
      backend_.upload(local(regions_[i]) + offset, counters.data(), layout.countersBytes);
    }
    // The first call of a pair sets its epoch.
    for (const std::size_t offset : layout.pairEpochs) {
      if (epoch != 0) backend_.upload(local(regions_[i]) + offset, words.data(), words.size() * sizeof(std::uint64_t));
    }
  }
}

}  // namespace mscclpp::kernels
