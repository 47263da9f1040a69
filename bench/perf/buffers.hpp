// Where the inputs and outputs of measured calls are.
#pragma once

#include <cstddef>
#include <memory>

#include "collective_shape.hpp"
#include "test_data.hpp"

namespace mscclpp::perf {

/// The memory of one call.
struct CallBuffers {
  std::byte* input;
  std::byte* output;
  std::byte* guard;  ///< behind the output, or behind the whole of which an output in place is a part
};

/// Pairs of an input and an output, one after the other, each with a guard behind it.
struct BufferPairs {
  std::byte* inputs;
  std::byte* outputs;

  /// Bytes of one input and of one output with their guards, rounded up to an alignment that suits all.
  static std::size_t stride(std::size_t elements, std::size_t elementBytes) {
    constexpr std::size_t alignment = 512;
    return (elements * elementBytes + guardBytes + alignment - 1) / alignment * alignment;
  }

  /// The buffers of pair `index` for a call of this rank.
  CallBuffers at(std::size_t index, const CollectiveShape& shape, std::size_t elementBytes, int rank, int root,
                 bool inPlace) const {
    std::byte* const input = inputs + index * stride(shape.input(), elementBytes);
    std::byte* const output = outputs + index * stride(shape.output(), elementBytes);
    std::byte* const inputEnd = input + shape.input() * elementBytes;
    std::byte* const outputEnd = output + shape.output() * elementBytes;
    const std::size_t ownPart = static_cast<std::size_t>(rank) * shape.count * elementBytes;
    const CallBuffers apart{input, output, output + shape.output(rank, root) * elementBytes};
    if (!inPlace) return apart;
    switch (shape.collective) {
      case CollectiveType::AllReduce:
      case CollectiveType::Broadcast:
      case CollectiveType::Reduce:
        return {input, input, inputEnd};
      case CollectiveType::AllGather:
        return {output + ownPart, output, outputEnd};
      case CollectiveType::Gather:
        return rank == root ? CallBuffers{output + ownPart, output, outputEnd} : apart;
      case CollectiveType::ReduceScatter:
        return {input, input + ownPart, inputEnd};
      case CollectiveType::Scatter:
        return rank == root ? CallBuffers{input, input + ownPart, inputEnd} : apart;
      default:
        return apart;
    }
  }
};

}  // namespace mscclpp::perf
