// Makes the inputs of a call, and checks its output, on the device where they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collective_shape.hpp"
#include "data_rule.hpp"
#include "mscclpp/basic/data_type.hpp"

struct CUstream_st;

namespace mscclpp::perf {

/// What buffers hold before a checked call.
inline constexpr int poisonByte = 0x5a;
/// Bytes behind an output that a call must leave as they are.
inline constexpr std::size_t guardBytes = 256;

/// The output of a rank in memory, and what it must be.
struct OutputData {
  const void* elements;
  std::size_t count;
  OutputRule rule;
  const void* guard;  ///< guardBytes bytes that were poisoned
};

/// Where the output of `rank` comes from. A SendReceive is a ring: rank r gets the message of rank r - 1.
OutputRule outputRule(const CollectiveShape& shape, const InputRule& inputs, int rank, int root,
                      bool roundsEachAddition);

/// Calls are enqueued on a stream on GPUs, and done in the calling thread on CPUs. Elements are aligned to their size.
class TestData {
 public:
  virtual ~TestData() = default;
  /// Writes the first `count` elements of a rank's input.
  virtual void fillInput(CollectiveType collective, DataType type, const InputRule& rule, int rank, void* elements,
                         std::size_t count, CUstream_st* stream) = 0;
  /// Adds the number of wrong elements and of overwritten guard bytes to *wrong, which is in the same memory.
  virtual void countWrong(CollectiveType collective, DataType type, const OutputData& output, std::uint64_t* wrong,
                          CUstream_st* stream) = 0;
};

std::unique_ptr<TestData> makeCpuTestData();
/// For the current device.
std::unique_ptr<TestData> makeGpuTestData();

}  // namespace mscclpp::perf
