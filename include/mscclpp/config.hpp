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
#define MSCCLPP_NOINLINE [[gnu::noinline]]
#define MSCCLPP_INLINE [[gnu::always_inline]] inline
#endif

// Unrolls the next loop by N (a constant expression): nvcc and gcc spell the pragma differently.
#define MSCCLPP_PRAGMA(text) _Pragma(#text)
#if defined(__CUDACC__) || defined(__clang__)
#define MSCCLPP_UNROLL MSCCLPP_PRAGMA(unroll)
#else
#define MSCCLPP_UNROLL MSCCLPP_PRAGMA(GCC unroll 16)
#endif
