// The functions that Collectives needs of a backend (CPU or GPU): memory, and the compiled variants.
#pragma once

#include <cstddef>
#include <memory>

#include "all_reduce_call.hpp"
#include "mscclpp/basic/clock_sync.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::kernels {

struct Backend {
  /// Allocates zero-filled memory for this rank only.
  std::shared_ptr<void> (*allocate)(std::size_t bytes);
  /// Fill memory with a byte, and copy from host memory; both return when done.
  void (*fill)(void* address, int byte, std::size_t bytes);
  void (*upload)(void* address, const void* from, std::size_t bytes);
  /// Whether LL128 with atomic line stores may be used between all ranks. Called by all ranks; the same result on each.
  bool (*areLineStoresAtomic)(Bootstrap& bootstrap);
  AllReduceFunction (*findAllReduce)(std::size_t algorithm, DataType type, ReduceOp op, int ranks);
  /// The same for variants that record their stages; null also for types and operators without them.
  AllReduceFunction (*findTracedAllReduce)(std::size_t algorithm, DataType type, ReduceOp op, int ranks);
  /// For TraceOptions; null if the backend uses the host's clock.
  void (*launchClockSync)(ClockSync* exchange);
};

/// The backend for the current device. Throws Error(InvalidUsage) in a build without CUDA.
const Backend& gpuBackend();
const Backend& cpuBackend();

}  // namespace mscclpp::kernels
