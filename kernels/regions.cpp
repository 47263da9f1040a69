#include "regions.hpp"

#include <algorithm>

#include "host/bootstrap/group_agreement.hpp"
#include "kernel_lookup.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
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

}  // namespace

Regions::Regions(Communicator& communicator, DeviceType deviceType, const Backend& backend,
                 const std::vector<std::size_t>& algorithmsInUse, int maxBlocks)
    : backend_(backend), rank_(communicator.bootstrap()->getRank()), indices_(algorithmTable.size(), -1) {
  const bool onGpu = deviceType == DeviceType::GPU;
  const int ranks = communicator.bootstrap()->getNranks();
  const auto pipelineOf = [&](const Algorithm& algorithm) {
    return (onGpu ? gpuPipeline(algorithm, ranks, maxBlocks) : cpuPipeline(algorithm)).shape;
  };
  for (const std::size_t index : algorithmsInUse) {
    const Algorithm& algorithm = algorithmTable[index];
    visitScratch(index, algorithm.maxBytes, ranks, pipelineOf(algorithm), [&]<class Scratch>(const Scratch& scratch) {
      constexpr std::uint32_t type = mscclpp::detail::typeNumber<Scratch>();
      const auto same = std::find_if(layouts_.begin(), layouts_.end(), [&](const Layout& l) { return l.type == type; });
      indices_[index] = static_cast<int>(same - layouts_.begin());
      if (same == layouts_.end()) {
        Layout layout{type, scratch.initialByte, scratch.firstEpoch, false, {}, 0, {}};
        if constexpr (requires { scratch.countersOffset(); }) {
          layout.hasCredits = Scratch::reuse == SlotReuse::ByCredits;
        } else if constexpr (requires { scratch.pair; }) {
          layout.hasCredits = true;
        }
        layouts_.push_back(layout);
        regions_.push_back({0, pipelineOf(algorithm), 0, 0, {}, nullptr});
      }
      Region& region = regions_[static_cast<std::size_t>(indices_[index])];
      region.capacity = std::max(region.capacity, algorithm.maxBytes);
    });
  }
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    Region& region = regions_[i];
    const auto index =
        static_cast<std::size_t>(std::find(indices_.begin(), indices_.end(), static_cast<int>(i)) - indices_.begin());
    visitScratch(index, region.capacity, ranks, region.pipeline, [&](const auto& scratch) {
      region.offset = bytes;
      region.bytes = scratch.windowBytes();
      Layout& layout = layouts_[i];
      if constexpr (requires { scratch.countersOffset(); }) {
        layout.counters = {scratch.countersOffset()};
        layout.countersBytes = scratch.countersBytes();
      } else if constexpr (requires { scratch.pair; }) {
        for (int peer = 0; peer < ranks; ++peer) {
          for (const std::size_t part : {scratch.senderOffset(peer), scratch.receiverOffset(peer)}) {
            layout.pairEpochs.push_back(part + scratch.epochsInPart());
            if constexpr (requires { scratch.pair.countersOffset(); }) {
              layout.counters.push_back(part + scratch.pair.countersOffset());
              layout.countersBytes = scratch.pair.countersBytes();
            } else {
              // Credits: a call sends before it gives credits.
              layout.counters.push_back(part + scratch.pair.creditOffset(0));
              layout.countersBytes = scratch.pair.creditOffset(2) - scratch.pair.creditOffset(0);
            }
          }
        }
      }
    });
    bytes += roundUp(region.bytes, regionAlignment);
  }
  memory_ = std::make_unique<SymmetricMemory>(communicator, bytes, deviceType);
  for (int r = 0; r < ranks; ++r) window_.push_back(static_cast<std::byte*>(memory_->peer(r)));
  // Also a barrier: no rank may send before every window is initialised.
  const mscclpp::detail::GroupAgreement agreement(*communicator.bootstrap(), "Collectives");
  agreement.runStep("initialise its scratch and epochs", [&] {
    for (std::size_t i = 0; i < regions_.size(); ++i) {
      Region& region = regions_[i];
      for (int r = 0; r < ranks; ++r) {
        region.window.push_back(window_[static_cast<std::size_t>(r)] + region.offset);
      }
      // The memory is zero-filled: pages that no call uses stay untouched.
      if (layouts_[i].initialByte != 0) backend_.fill(local(region), layouts_[i].initialByte, region.bytes);
      region.epochs = backend_.allocate(epochWords * sizeof(std::uint64_t));
    }
    setEpoch(0);
    return std::vector<char>();
  });
}

void Regions::setEpoch(std::uint64_t epoch) {
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    const Layout& layout = layouts_[i];
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
