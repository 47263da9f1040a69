// How a GPU tells a Trace its time, in programs that nvcc compiles.
#pragma once

#include "mscclpp/basic/clock_exchange.hpp"
#include "mscclpp/host/gpu.hpp"
#include "mscclpp/host/gpu_guard.hpp"
#include "mscclpp/kernel.cuh"

namespace mscclpp {

/// For TraceOptions::answerClock: one thread of the current device answers, on a stream of its own.
inline void answerClockOnGpu(ClockExchange* exchange) {
  const AvoidCudaGraphCaptureGuard captureGuard;
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  MSCCLPP_CUDATHROW(launch<ClockAnswer>({1, 32}, stream, {exchange}, ClockAnswer::Nothing{}, ClockAnswer::Nothing{}));
}

}  // namespace mscclpp
