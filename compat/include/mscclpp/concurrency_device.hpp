// MSCCL++'s synchronisation within one GPU: a barrier of blocks and a counting semaphore, in zero-filled memory.
#pragma once

#include "mscclpp/atomic_device.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/trapping_wait.hpp"
#include "mscclpp/device.hpp"
#include "mscclpp/poll_device.hpp"
#include "mscclpp/sync/grid_barrier.hpp"

namespace mscclpp {

/// A barrier of `blockNum` co-resident blocks of one launch, called by all threads of each block. One launch at a time.
struct DeviceSyncer {
  /// Number of counters in MSCCL++'s barrier; this one has a counter and a generation.
  static constexpr unsigned int NumCounters = 3;

  GridBarrier barrier;

#if defined(__CUDACC__)
  MSCCLPP_DEVICE_INLINE void sync(int blockNum, std::int64_t maxSpinCount = 100000000) {
    if (blockNum == 1) return gpu::Block().sync();
    TrappingWait wait(maxSpinCount);
    barrier.sync(gpu::Grid(0, blockNum), wait);
  }
#endif
};

/// A counting semaphore for blocks of one GPU; each call is made by one thread.
struct DeviceSemaphore {
  int value;

  DeviceSemaphore() = default;
  MSCCLPP_HOST_DEVICE constexpr DeviceSemaphore(int initialValue) : value(initialValue) {}

  MSCCLPP_HOST_DEVICE_INLINE void set(int newValue) {
    atomicStore<int, scopeDevice>(&value, newValue, memoryOrderRelease);
  }
  /// Decrements the semaphore, waiting while it is zero. Writes before the matching release are visible afterwards.
  MSCCLPP_HOST_DEVICE_INLINE void acquire(std::int64_t maxSpinCount = -1) {
    TrappingWait wait(maxSpinCount);
    wait.until(WaitSite{WaitOperation::Unknown, -1, -1, 0, 1}, [&](std::uint64_t&) {
      cuda::atomic_ref<int, scopeDevice> count(value);
      int now = count.load(memoryOrderRelaxed);
      return now > 0 && count.compare_exchange_strong(now, now - 1, memoryOrderAcquire, memoryOrderRelaxed);
    });
  }
  MSCCLPP_HOST_DEVICE_INLINE void release() { atomicFetchAdd<int, scopeDevice>(&value, 1, memoryOrderRelease); }
};

}  // namespace mscclpp
