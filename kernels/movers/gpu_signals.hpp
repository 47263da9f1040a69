// What a OneSidedMover enqueues on a GPU, and signals through pads. In a build without CUDA, each function throws
// Error(InvalidUsage).
#pragma once

#include <cstddef>

#include "kernels/movers/pad_signals.hpp"
#include "kernels/movers/signals.hpp"

struct CUstream_st;

namespace mscclpp::kernels::gpu {

/// Loads the kernels: in a capture that could make calls which the capture rejects.
void loadSignalKernels();
void enqueueCopy(void* to, const void* from, std::size_t bytes, CUstream_st* stream);
void enqueueSignal(const SendSignal::Args& args, CUstream_st* stream);
void enqueueWait(const AwaitSignals::Args& args, CUstream_st* stream);
void enqueuePadSignals(const ExchangePadSignals::Args& args, CUstream_st* stream);

}  // namespace mscclpp::kernels::gpu
