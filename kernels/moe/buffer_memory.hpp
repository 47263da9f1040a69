// The memory of a moe::Buffer and of its handles: sizes and places, from the configuration alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/moe/calls.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/kernels/moe_buffer.hpp"
#include "mscclpp/moe/combine.hpp"
#include "mscclpp/moe/dispatch.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "mscclpp/sync/grid_gate.hpp"

namespace mscclpp::moe::detail {

/// Takes parts of an allocation, one after the other.
class Parts {
 public:
  template <class T>
  std::size_t add(std::size_t count) {
    const std::size_t at = bytes_;
    bytes_ += roundUp(count * sizeof(T), 128);
    return at;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};
/// What is at an offset, in bytes.
template <class T>
T* at(void* memory, std::size_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(memory) + offset);
}

/// Throws Error(InvalidUsage) for a configuration that no buffer of so many ranks can have.
void requireValid(const BufferConfig& config, int ranks);

inline Dimensions dimensionsOf(const BufferConfig& config, int ranks, Form form) {
  return {form == Form::LowLatency ? config.maxLowLatencyTokens : config.maxTokens, config.topk, config.experts, ranks};
}
inline bool isQuantised(const BufferConfig& config) {
  return config.format != RowFormat::Bf16;
}
/// Values of a pack of 16 bytes, as dispatch delivers them.
inline std::uint32_t valuesPerPack(const BufferConfig& config) {
  return isQuantised(config) ? 16 : 8;
}
inline std::uint32_t dispatchPacks(const BufferConfig& config) {
  return config.hidden / valuesPerPack(config);
}
inline std::uint32_t lowLatencyStride(const BufferConfig& config, int ranks) {
  return static_cast<std::uint32_t>(ranks) * config.maxLowLatencyTokens;
}

/// The calls of a form, and their scratch.
template <class Transport>
struct FormCalls {
  using Dispatch = moe::Dispatch<Transport, 0, std::int64_t>;
  using Combine = moe::Combine<bf16, Transport>;
  using Scratch = RowSlots<Transport>;

  static Scratch dispatchScratch(const BufferConfig& config, const Dimensions& dimensions) {
    return Dispatch::scratchFor(dimensions, dispatchPacks(config), isQuantised(config));
  }
  static Scratch combineScratch(const BufferConfig& config, const Dimensions& dimensions) {
    return Combine::scratchFor(dimensions, config.hidden / 8);
  }
};

/// The arrays of a DispatchWorkspace in one allocation: offsets in bytes.
struct WorkspaceParts {
  std::size_t tokensPerExpert, tokensPerRank, expertIndex, segmentCounts, barrier, gate, blockMemory, bytes;

  WorkspaceParts(const BufferConfig& config, int ranks, std::size_t blockWords) {
    const auto experts = static_cast<std::size_t>(config.experts);
    const auto size = static_cast<std::size_t>(ranks);
    const std::size_t counted = config.maxTokens > 0 ? 1 : 0;  // by all blocks together: the bandwidth form only
    Parts parts;
    tokensPerExpert = parts.add<std::uint32_t>(counted * experts);
    tokensPerRank = parts.add<std::uint32_t>(counted * size);
    expertIndex = parts.add<std::int32_t>(std::size_t{config.maxTokens} * static_cast<std::size_t>(config.topk));
    segmentCounts = parts.add<std::uint32_t>(maxSegments * (experts + size));
    barrier = parts.add<GridBarrier>(1);
    gate = parts.add<GridGate>(1);
    blockMemory = parts.add<std::uint32_t>(blockWords);
    bytes = parts.bytes();
  }
};

/// The arrays of a Handle, of calls of either form.
struct HandleParts {
  std::size_t rankIndex, received, positions, weights, stamp, bytes;

  HandleParts(const BufferConfig& config, int ranks) {
    const std::size_t tokens = std::max(config.maxTokens, config.maxLowLatencyTokens);
    const auto size = static_cast<std::size_t>(ranks);
    const std::size_t entries = size * tokens * static_cast<std::size_t>(config.topk);
    Parts parts;
    rankIndex = parts.add<std::int32_t>(tokens * size);
    received = parts.add<std::uint32_t>(size);
    positions = parts.add<std::int32_t>(entries);
    weights = parts.add<float>(entries);
    stamp = parts.add<std::uint64_t>(1);
    bytes = parts.bytes();
  }
};

}  // namespace mscclpp::moe::detail
