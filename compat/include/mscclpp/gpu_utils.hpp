// MSCCL++'s CUDA helpers: macros that throw, guards, streams, memory.
#pragma once

#include <unordered_map>

#include "mscclpp/env.hpp"
#include "mscclpp/errors.hpp"
#include "mscclpp/gpu.hpp"
#include "mscclpp/gpu_stream_pool.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"
#include "mscclpp/utils.hpp"

namespace mscclpp::detail {

/// The handle type for sharing memory of multicast objects with other processes: a file descriptor.
inline constexpr CUmemAllocationHandleType nvlsCompatibleMemHandleType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

}  // namespace mscclpp::detail
