#include "host/transport/counter_pool.hpp"

#include "host/memory/device_memory.hpp"

namespace mscclpp::detail {

namespace {
constexpr std::size_t counterStride = 64;
constexpr std::size_t countersPerChunk = 1024;
}  // namespace

std::shared_ptr<std::uint64_t> CounterPool::allocate() {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    chunks_.push_back(allocateSharedMemory(device_, counterStride * countersPerChunk));
    // Space for every counter: returning one must not allocate.
    free_.reserve(chunks_.size() * countersPerChunk);
    auto* base = static_cast<char*>(chunks_.back().get());
    for (std::size_t i = countersPerChunk; i-- > 0;) {
      free_.push_back(reinterpret_cast<std::uint64_t*>(base + i * counterStride));
    }
  }
  std::uint64_t* counter = free_.back();
  fillMemory(device_, counter, 0, sizeof(*counter));
  free_.pop_back();
  return {counter, [pool = shared_from_this()](std::uint64_t* returned) {
            if (!pool->owner_.isCurrent()) return;  // the lock may have been held at the fork
            std::lock_guard poolLock(pool->mutex_);
            pool->free_.push_back(returned);
          }};
}

}  // namespace mscclpp::detail
