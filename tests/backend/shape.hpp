// The shape of a launch, and the description of a failed wait, for both backends of the device tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "mscclpp/basic/wait_record.hpp"

namespace mscclpp::test {

/// The timeout of waits in tests, in nanoseconds: far longer than any wait takes, with sanitizers on a busy machine
/// too.
inline constexpr std::uint64_t waitTimeout = 40'000'000'000;

struct Shape {
  int ranks = 1;
  int blocks = 1;
  int warps = 1;                ///< per block
  std::size_t sharedBytes = 0;  ///< per block, at grid.sharedMemory()
};

inline std::string describe(const WaitRecord& record) {
  return "a wait failed: outcome " + std::to_string(static_cast<int>(record.outcome)) + ", operation " +
         std::to_string(static_cast<int>(record.operation)) + ", rank " + std::to_string(record.rank) + ", peer " +
         std::to_string(record.peer) + ", block " + std::to_string(record.block) + ", expected " +
         std::to_string(record.expected) + ", seen " + std::to_string(record.seen) + ", waited " +
         std::to_string(record.waitedNanoseconds) + " ns";
}

}  // namespace mscclpp::test
