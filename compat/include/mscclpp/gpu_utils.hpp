// MSCCL++'s CUDA helpers: macros that throw, guards, streams, memory.
#pragma once

#include "mscclpp/errors.hpp"
#include "mscclpp/gpu.hpp"
#include "mscclpp/gpu_stream_pool.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/gpu_guard.hpp"
#include "mscclpp/host/gpu_memory.hpp"

namespace mscclpp::detail {

/// How memory that multicast objects map is shared with other processes: as a descriptor.
inline constexpr CUmemAllocationHandleType nvlsCompatibleMemHandleType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

}  // namespace mscclpp::detail
