// MSCCL++'s macros for host and device compilation.
#pragma once

#include "mscclpp/config.hpp"

#if defined(__CUDACC__)
#include "mscclpp/arch/barrier.hpp"
#endif

#if defined(__NVCC__)
#define MSCCLPP_DEVICE_COMPILE
#define MSCCLPP_DEVICE_CUDA
#define MSCCLPP_DEVICE_INLINE __forceinline__ __device__
#define MSCCLPP_HOST_DEVICE_INLINE __forceinline__ __host__ __device__
/// Synchronizes the threads of a block and orders their accesses to shared memory.
#define __syncshm() ::mscclpp::arch::blockSync()
#else
#define MSCCLPP_HOST_COMPILE
#define MSCCLPP_DEVICE_INLINE inline
#define MSCCLPP_HOST_DEVICE_INLINE inline
#endif
