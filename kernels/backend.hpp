// The functions that Collectives needs of a backend (CPU or GPU): memory, and the compiled kernels.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "exchange_call.hpp"
#include "gpu_budget.hpp"
#include "kernel_call.hpp"
#include "mscclpp/basic/clock_sync.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "stream_events.hpp"

namespace mscclpp::kernels {

class Fp8Kernels;
class RmsNormKernels;

/// A range of addresses.
struct MemoryRange {
  void* begin;
  std::size_t bytes;
};

struct Backend {
  /// The name of the current GPU; empty on CPUs.
  std::string (*deviceName)();
  /// The number of the current GPU; 0 on CPUs.
  int (*currentDevice)();
  /// Whether work that is enqueued on a stream is captured in a graph; false on CPUs.
  bool (*isCapturing)(CUstream_st* stream);
  /// Returns when all work that has been enqueued on the current device is done; nothing to do on CPUs. Not while a
  /// stream of the device is captured.
  void (*awaitWork)();
  /// The allocation in which a range of the user's memory lies; the range itself if it is in none that ranks could map,
  /// which RegisteredBuffer then refuses with the reason.
  MemoryRange (*allocationOf)(MemoryRange range);
  /// Allocates zero-filled memory for this rank only.
  std::shared_ptr<void> (*allocate)(std::size_t bytes);
  /// Fill memory with a byte, and copy from host memory; both return when done.
  void (*fill)(void* address, int byte, std::size_t bytes);
  void (*upload)(void* address, const void* from, std::size_t bytes);
  /// Whether the current device has bulk copies: every GPU from sm_90 on, and CPUs.
  bool (*hasBulkCopies)();
  /// Whether LL128 with atomic line stores may be used between all ranks. Called by all ranks; the same result on each.
  bool (*areLineStoresAtomic)(Bootstrap& bootstrap);
  /// The kernels of an algorithm, an index in algorithmTable; the type matters where it reduces. Null if there are
  /// none.
  KernelFunction (*find)(std::size_t algorithm, DataType type, int ranks);
  /// The same for kernels that record their stages.
  KernelFunction (*findTraced)(std::size_t algorithm, DataType type, int ranks);
  /// The same for kernels that perform several calls as one (KernelCall::joined).
  KernelFunction (*findJoined)(std::size_t algorithm, DataType type, int ranks);
  /// The kernel of exchanges.
  int (*exchange)(const ExchangeCall& call);
  /// The kernels of all-reduces with RMSNorm, of FLOAT32, FLOAT16 or BFLOAT16. Called by all ranks.
  std::unique_ptr<RmsNormKernels> (*makeRmsNorm)(DataType type, Communicator& communicator,
                                                 const std::shared_ptr<WaitMonitor>& monitor);
  /// The same of all-reduces that send fp8.
  std::unique_ptr<Fp8Kernels> (*makeAllReduceFp8)(DataType type, Communicator& communicator,
                                                  const std::shared_ptr<WaitMonitor>& monitor);
  /// For TraceOptions; null if the backend uses the host's clock.
  void (*launchClockSync)(ClockSync* exchange);
  /// The budget of the current GPU; null on CPUs.
  std::shared_ptr<GpuBudget> (*budget)();
};

/// The backend for the current device. Throws Error(InvalidUsage) in a build without CUDA.
const Backend& gpuBackend();
const Backend& cpuBackend();

}  // namespace mscclpp::kernels
