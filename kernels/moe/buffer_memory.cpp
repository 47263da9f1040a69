// Sizes of the memory of a moe::Buffer, of its handles and of its outputs.
#include "kernels/moe/buffer_memory.hpp"

#include <algorithm>

namespace mscclpp::moe {

std::size_t rowBytes(const BufferConfig& config) {
  return config.hidden * (isQuantised(config) ? 1u : 2u) +
         (isQuantised(config) ? (config.hidden + quantisationGroup - 1) / quantisationGroup * sizeof(float) : 0u);
}
std::uint32_t defaultCapacity(const BufferConfig& config, int ranks) {
  constexpr std::uint64_t bytes = std::uint64_t{256} << 20;
  const Dimensions sizes{config.maxTokens, config.topk, config.experts, ranks};
  const std::uint64_t even = std::uint64_t{config.maxTokens} * static_cast<std::uint64_t>(config.topk) +
                             static_cast<std::uint64_t>(sizes.expertsPerRank()) * (config.alignment - 1);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(ExpertPlacement::largestCapacity(sizes, config.alignment),
                                                            std::max(bytes / rowBytes(config), 2 * even)));
}

BufferMemory memoryFor(const BufferConfig& config, int ranks) {
  BufferMemory memory{};
  const auto addForm = [&]<class Transport>(Form form, const FormCalls<Transport>&) {
    const Dimensions dimensions = dimensionsOf(config, ranks, form);
    if (dimensions.maxTokens == 0) return;
    memory.dispatches += FormCalls<Transport>::dispatchScratch(config, dimensions).windowBytes();
    memory.combines += FormCalls<Transport>::combineScratch(config, dimensions).windowBytes();
  };
  addForm(Form::Bandwidth, FormCalls<StoreTransport>{});
  addForm(Form::LowLatency, FormCalls<kernels::LowLatencyRows>{});
  memory.workspace = WorkspaceParts(config, ranks, 0).bytes;
  memory.handle = HandleParts(config, ranks).bytes;
  if (config.maxTokens > 0) memory.output = defaultCapacity(config, ranks) * rowBytes(config);
  memory.lowLatencyOutput = std::size_t{lowLatencyStride(config, ranks)} *
                            static_cast<std::size_t>(config.experts / ranks) * rowBytes(config);
  return memory;
}

}  // namespace mscclpp::moe
