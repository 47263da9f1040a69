// Eight-byte counters for semaphores, cut from a few shareable allocations.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "mscclpp/host/device.hpp"

namespace mscclpp::detail {

/// Peers map a whole allocation, so counters share one: many semaphores cost one mapping. Counters lie a cache line
/// apart, since different peers write them.
class TokenPool : public std::enable_shared_from_this<TokenPool> {
 public:
  explicit TokenPool(const Device& device) : device_(device) {}

  /// A counter that is zero. It returns to the pool with its last owner, and keeps the pool.
  std::shared_ptr<std::uint64_t> take();

 private:
  Device device_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> chunks_;
  std::vector<std::uint64_t*> free_;
};

}  // namespace mscclpp::detail
