// Eight-byte counters for semaphores, taken from a few shareable allocations.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "host/base/process_identity.hpp"
#include "mscclpp/host/base/device.hpp"

namespace mscclpp::detail {

/// Peers map whole allocations, so counters share them: many semaphores need only one mapping. Each counter has its own
/// cache line, since different peers write them.
class CounterPool : public std::enable_shared_from_this<CounterPool> {
 public:
  explicit CounterPool(const Device& device) : device_(device) {}

  /// A counter that is zero. Its last owner returns it to the pool; it keeps the pool alive.
  std::shared_ptr<std::uint64_t> allocate();

 private:
  const OwnerProcess owner_;
  Device device_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> chunks_;
  std::vector<std::uint64_t*> free_;
};

}  // namespace mscclpp::detail
