// The counters of a simulated plan: the receiving ends of channels, and device semaphores.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace mscclpp::plan {

/// A counter which some actors raise and blocks wait for.
struct Counter {
  struct Raise {
    std::int32_t clock = -1;  ///< what is ordered before it: the number of a snapshot
    bool relaxed = false;
    std::int32_t block = -1;      ///< of the plan
    std::int32_t operation = -1;  ///< of the block
  };
  /// A wait that took its order from all raises before it, which is right only if no other can come before it.
  struct FullWait {
    std::int32_t block = -1;
    std::int32_t operation = -1;
    std::int32_t interval = 0;  ///< of the block
    std::int32_t raises = 0;
  };

  std::int32_t initial = 0;
  std::vector<std::int32_t> producers;  ///< blocks of the plan
  std::vector<std::int32_t> consumers;
  std::vector<Raise> raises;
  std::int32_t taken = 0;  ///< by waits
  std::vector<FullWait> fullWaits;

  constexpr std::int32_t value() const { return initial + static_cast<std::int32_t>(raises.size()) - taken; }
  /// Whether the order of raises, and who takes which, follows from the order of two blocks alone.
  constexpr bool isSimple() const { return producers.size() <= 1 && consumers.size() <= 1; }

  static constexpr void note(std::vector<std::int32_t>& blocks, std::int32_t block) {
    if (std::find(blocks.begin(), blocks.end(), block) == blocks.end()) blocks.push_back(block);
  }
};

}  // namespace mscclpp::plan
