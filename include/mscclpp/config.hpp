// The only macros of the library: how one source becomes host and device code.
#pragma once

// A function marked MSCCLPP_HOST_DEVICE compiles for CPU threads and for GPUs; without nvcc or NVRTC the marks vanish.
#if defined(__CUDACC__)
#define MSCCLPP_HOST_DEVICE __host__ __device__
#define MSCCLPP_DEVICE __device__
// Slow paths that must not cost the fast path registers or instruction cache.
#define MSCCLPP_NOINLINE __noinline__
// Inlining is part of the cost model of device code: a call spills registers around a spin loop.
#define MSCCLPP_INLINE __host__ __device__ __forceinline__
#else
#define MSCCLPP_HOST_DEVICE
#define MSCCLPP_DEVICE
#define MSCCLPP_NOINLINE __attribute__((noinline))
#define MSCCLPP_INLINE __attribute__((always_inline)) inline
#endif

// MSCCLPP_UNROLL unrolls the next loop wholly. GPU code needs it: a register array indexed in a loop that stays a loop goes to local memory.
// MSCCLPP_NO_UNROLL keeps the next loop as it is: one that seldom turns is shorter so. CPU compilers judge for themselves, also when nvcc calls one: it would
// warn of a pragma that it does not know.
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
#define MSCCLPP_UNROLL _Pragma("unroll")
#define MSCCLPP_NO_UNROLL _Pragma("unroll 1")
#else
#define MSCCLPP_UNROLL
#define MSCCLPP_NO_UNROLL
#endif

// Marks what every compiler takes although the standard has it not; NVRTC needs no mark.
#if defined(__CUDACC_RTC__)
#define MSCCLPP_EXTENSION
#else
#define MSCCLPP_EXTENSION __extension__
#endif
