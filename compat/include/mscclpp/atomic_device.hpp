// MSCCL++'s atomic accesses with the memory order as an argument: libcu++'s, for any memory, on GPUs and CPUs.
#pragma once

#include <cuda/atomic>

#include "mscclpp/device.hpp"

namespace mscclpp {

inline constexpr cuda::memory_order memoryOrderRelaxed = cuda::memory_order_relaxed;
inline constexpr cuda::memory_order memoryOrderAcquire = cuda::memory_order_acquire;
inline constexpr cuda::memory_order memoryOrderRelease = cuda::memory_order_release;
inline constexpr cuda::memory_order memoryOrderAcqRel = cuda::memory_order_acq_rel;
inline constexpr cuda::memory_order memoryOrderSeqCst = cuda::memory_order_seq_cst;

inline constexpr cuda::thread_scope scopeSystem = cuda::thread_scope_system;
inline constexpr cuda::thread_scope scopeDevice = cuda::thread_scope_device;

template <typename T, cuda::thread_scope Scope = scopeSystem>
MSCCLPP_HOST_DEVICE_INLINE T atomicLoad(const T* ptr, cuda::memory_order memoryOrder) {
  return cuda::atomic_ref<T, Scope>(*const_cast<T*>(ptr)).load(memoryOrder);
}
template <typename T, cuda::thread_scope Scope = scopeSystem>
MSCCLPP_HOST_DEVICE_INLINE void atomicStore(T* ptr, const T& value, cuda::memory_order memoryOrder) {
  cuda::atomic_ref<T, Scope>(*ptr).store(value, memoryOrder);
}
template <typename T, cuda::thread_scope Scope = scopeSystem>
MSCCLPP_HOST_DEVICE_INLINE T atomicFetchAdd(T* ptr, const T& value, cuda::memory_order memoryOrder) {
  return cuda::atomic_ref<T, Scope>(*ptr).fetch_add(value, memoryOrder);
}

}  // namespace mscclpp
