// The allocator of mscclpp.torch.mem_pool(): the functions that torch.cuda.memory.CUDAPluggableAllocator looks up.
#include <sys/types.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "mscclpp/host/base/logger.hpp"
#include "python/src/gpu_support.hpp"

struct CUstream_st;

namespace mscclpp::python {

namespace {

struct Allocations {
  std::mutex mutex;
  std::unordered_map<void*, std::shared_ptr<void>> memory;
};

// Never destroyed: PyTorch frees at any time until the process ends.
Allocations& allocations() {
  static auto* const instance = new Allocations;
  return *instance;
}

}  // namespace

/// `bytes` bytes on the current GPU, which PyTorch has set to `device`. Null if there is not enough memory: PyTorch
/// then frees what it has cached, and tries again.
extern "C" [[gnu::visibility("default")]] void* mscclpp_allocate(ssize_t bytes, int /*device*/, CUstream_st*) {
  try {
    auto memory = allocateGpuMemory(static_cast<std::size_t>(bytes), GpuBufferGranularity::MultiCastMinimum).memory;
    void* const address = memory.get();
    const std::lock_guard lock(allocations().mutex);
    allocations().memory.emplace(address, std::move(memory));
    return address;
  } catch (const std::exception& error) {
    logMessage(LogLevel::Warn, LogSubsystem::Gpu, "the memory pool cannot allocate ", bytes, " bytes: ", error.what());
    return nullptr;
  }
}

/// Waits for the GPU first, as cudaFree does.
extern "C" [[gnu::visibility("default")]] void mscclpp_free(void* address, ssize_t /*bytes*/, int /*device*/,
                                                            CUstream_st*) {
  std::shared_ptr<void> memory;  // ends after the lock
  const std::lock_guard lock(allocations().mutex);
  const auto found = allocations().memory.find(address);
  if (found == allocations().memory.end()) return;
  memory = std::move(found->second);
  allocations().memory.erase(found);
}

}  // namespace mscclpp::python
