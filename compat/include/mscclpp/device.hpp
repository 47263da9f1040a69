// MSCCL++'s macros that say what is compiled for what.
#pragma once

#include "mscclpp/config.hpp"

#if defined(__NVCC__)
#define MSCCLPP_DEVICE_COMPILE
#define MSCCLPP_DEVICE_CUDA
#define MSCCLPP_DEVICE_INLINE __forceinline__ __device__
#define MSCCLPP_HOST_DEVICE_INLINE __forceinline__ __host__ __device__
#else
#define MSCCLPP_HOST_COMPILE
#define MSCCLPP_DEVICE_INLINE inline
#define MSCCLPP_HOST_DEVICE_INLINE inline
#endif
