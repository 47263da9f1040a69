// The only macros of the library: how one source becomes host and device code.
#pragma once

// 202002 is C++20; g++ 12's -std=c++20 and nvcc's define it so.
#if !defined(__CUDACC_RTC__) && __cplusplus < 202002L
#error "mscclpp needs -std=c++20 or newer: the compiler was started with an older version of C++ (nvcc's default is 17)"
#include <compile with -std=c++20>  // does not exist: ends the compilation, before the errors that follow
#endif

// A function marked MSCCLPP_HOST_DEVICE compiles for CPU threads and for GPUs; other compilers see no attribute.
#if defined(__CUDACC__)
#define MSCCLPP_HOST_DEVICE __host__ __device__
#define MSCCLPP_DEVICE __device__
// For slow paths that must not cost the fast path registers or instruction cache.
#define MSCCLPP_NOINLINE __noinline__
// Device code relies on inlining: a call spills registers around a spin loop.
#define MSCCLPP_INLINE __host__ __device__ __forceinline__
#else
#define MSCCLPP_HOST_DEVICE
#define MSCCLPP_DEVICE
#define MSCCLPP_NOINLINE __attribute__((noinline))
// Unoptimised, and under g++'s ThreadSanitizer, code for CPUs compiles in half the time if functions are not inlined.
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_THREAD__)
#define MSCCLPP_INLINE __attribute__((always_inline)) inline
#else
#define MSCCLPP_INLINE inline
#endif
#endif

// MSCCLPP_UNROLL unrolls the next loop completely: on a GPU, an array that is indexed in a loop stays in registers only
// if the loop is unrolled. MSCCLPP_NO_UNROLL keeps a rarely executed loop small. Both are empty for CPU compilers, also
// for nvcc's host pass: they would warn of an unknown pragma.
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
#define MSCCLPP_UNROLL _Pragma("unroll")
#define MSCCLPP_NO_UNROLL _Pragma("unroll 1")
#else
#define MSCCLPP_UNROLL
#define MSCCLPP_NO_UNROLL
#endif

// Marks extensions of the language that all supported compilers have; NVRTC needs no mark.
#if defined(__CUDACC_RTC__)
#define MSCCLPP_EXTENSION
#else
#define MSCCLPP_EXTENSION __extension__
#endif

// MSCCLPP_CHECKED: 1 = calls of collectives check their arguments, and that all ranks make the same call, before they
// touch memory (collective/call_check.hpp). All ranks of a job must agree on it. By default 1 on CPUs unless NDEBUG is
// defined, and on GPUs with nvcc -G only, since a check costs a round trip between the ranks.
#if !defined(MSCCLPP_CHECKED)
#if defined(__CUDACC_DEBUG__) || (!defined(__CUDACC__) && !defined(NDEBUG))
#define MSCCLPP_CHECKED 1
#else
#define MSCCLPP_CHECKED 0
#endif
#endif

namespace mscclpp {
/// Whether calls of collectives are checked. Nothing but code depends on it: no layout does.
inline constexpr bool checked = MSCCLPP_CHECKED != 0;
}  // namespace mscclpp
