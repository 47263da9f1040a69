// Sizes of the memory of a moe::Buffer, of its handles and of its outputs.
#include "kernels/moe/buffer_memory.hpp"

#include <algorithm>
#include <string>

#include "kernels/moe/require.hpp"

namespace mscclpp::moe {

using namespace detail;

namespace {

/// Calls f(scratch of dispatches, scratch of combines) for each form that a buffer has.
template <class F>
void forEachScratch(const BufferConfig& config, int ranks, const F& f) {
  const auto callFor = [&]<class Transport>(Form form, const FormCalls<Transport>&) {
    const Dimensions dimensions = dimensionsOf(config, ranks, form);
    if (dimensions.maxTokens == 0) return;
    f(FormCalls<Transport>::dispatchScratch(config, dimensions),
      FormCalls<Transport>::combineScratch(config, dimensions));
  };
  callFor(Form::Bandwidth, FormCalls<StoreTransport>{});
  callFor(Form::LowLatency, FormCalls<kernels::LowLatencyRows>{});
}

}  // namespace

void detail::requireValid(const BufferConfig& config, int ranks) {
  require(ranks >= 1 && ranks <= maxTeamSize,
          "the number of ranks is " + std::to_string(ranks) + "; it is 1 to " + std::to_string(maxTeamSize));
  require(config.maxTokens > 0 || config.maxLowLatencyTokens > 0,
          "maxTokens and maxLowLatencyTokens are 0: give the most tokens of a call of either form");
  require(config.maxTokens <= 65535, "a call has at most 65535 tokens");
  require(config.maxLowLatencyTokens <= moe::mostLowLatencyTokens,
          "maxLowLatencyTokens is " + std::to_string(config.maxLowLatencyTokens) + "; a low-latency call has at most " +
              std::to_string(moe::mostLowLatencyTokens) + ": dispatch() is for more");
  require(config.topk >= 1 && config.topk <= maxTopk,
          "topk is " + std::to_string(config.topk) + "; a token has 1 to " + std::to_string(maxTopk) + " experts");
  require(config.experts > 0 && config.experts % ranks == 0, "experts is " + std::to_string(config.experts) +
                                                                 "; it must be a positive multiple of the " +
                                                                 std::to_string(ranks) + " ranks");
  require(config.hidden > 0 && config.hidden % valuesPerPack(config) == 0,
          "hidden is " + std::to_string(config.hidden) + "; it must be a positive multiple of " +
              std::to_string(valuesPerPack(config)) + (isQuantised(config) ? " for rows of fp8" : ""));
  require(config.experts / ranks <= 65535, "a rank has at most 65535 experts");
  require(config.alignment > 0 && config.alignment <= 65536,
          "alignment is " + std::to_string(config.alignment) + "; it must be 1 (none) to 65536 rows");
  require(config.blocks >= 0 && config.lowLatencyBlocks >= 0 && config.sendingBlocks >= 0 &&
              config.combineSendingBlocks >= -1,
          "the number of blocks is negative");
  const Dimensions many{config.maxTokens, config.topk, config.experts, ranks};
  const auto few = std::uint64_t{config.maxLowLatencyTokens} * static_cast<std::uint64_t>(config.experts);
  require(ExpertPlacement::largestCapacity(many, config.alignment) <= ExpertPlacement::mostRows &&
              few <= ExpertPlacement::mostRows,
          "the output would have 2^31 rows or more: give fewer tokens or experts, or a smaller alignment");
  forEachScratch(config, ranks, [](const auto& dispatch, const auto& combine) {
    require(dispatch.isValid() && combine.isValid(),
            "a rank's rows of a call would have 2^32 packs of 16 bytes or more: give fewer tokens, or shorter rows");
  });
}

std::size_t rowBytes(const BufferConfig& config) {
  if (!isQuantised(config)) return config.hidden * std::size_t{2};
  return config.hidden + scalesOfRow(config.hidden, Quantisation::Fp8PerGroup) * sizeof(float);
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
  requireValid(config, ranks);
  BufferMemory memory{};
  forEachScratch(config, ranks, [&](const auto& dispatch, const auto& combine) {
    memory.dispatches += dispatch.windowBytes();
    memory.combines += combine.windowBytes();
  });
  memory.workspace = WorkspaceParts(config, ranks, 0).bytes;
  memory.handle = HandleParts(config, ranks).bytes;
  if (config.maxTokens > 0) memory.output = defaultCapacity(config, ranks) * rowBytes(config);
  memory.lowLatencyOutput = std::size_t{lowLatencyStride(config, ranks)} *
                            static_cast<std::size_t>(config.experts / ranks) * rowBytes(config);
  return memory;
}

}  // namespace mscclpp::moe
