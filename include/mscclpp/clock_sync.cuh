// Clock synchronisation of a Trace with a GPU, for programs compiled by nvcc.
#pragma once

#include "mscclpp/basic/clock_sync.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"
#include "mscclpp/kernel.cuh"

namespace mscclpp {

/// For TraceOptions::launchClockSync: one thread of the current device responds, on a new stream. Throws CudaError if
/// the launch fails.
inline void launchClockSyncOnGpu(ClockSync* exchange) {
  const AvoidCudaGraphCaptureGuard captureGuard;
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  MSCCLPP_CUDATHROW(launch<ClockSyncResponder>({1, 32}, stream, {exchange}, ClockSyncResponder::Empty{},
                                               ClockSyncResponder::Empty{}));
}

}  // namespace mscclpp
