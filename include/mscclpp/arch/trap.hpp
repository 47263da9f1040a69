// Trap: for errors after which execution must not continue and that cannot be reported.
#pragma once

#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// On a GPU the kernel is terminated and every later CUDA call of its context fails; on a CPU the process is
/// terminated.
MSCCLPP_INLINE void trap() {
#if defined(__CUDA_ARCH__)
  asm volatile("trap;");
#else
  __builtin_trap();
#endif
}

}  // namespace mscclpp::arch
