// Memory fences. Prefer release and acquire on the flag that publishes the data: ThreadSanitizer does not model fences.
#pragma once

#include "mscclpp/arch/order.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// Acquire-release fence: orders the calling thread's earlier accesses before its later ones, for observers in scope.
template <Scope scope>
MSCCLPP_INLINE void fence() {
#if defined(__CUDA_ARCH__)
  if constexpr (scope == Scope::Device) {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
  } else {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
  }
#else
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  __atomic_thread_fence(__ATOMIC_ACQ_REL);
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#pragma GCC diagnostic pop
#endif
#endif
}

}  // namespace mscclpp::arch
