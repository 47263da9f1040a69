// Ends what is running, loudly: for what must not go on and has nobody to tell.
#pragma once

#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// A GPU ends the kernel and every later call of its context fails; a CPU ends the process.
MSCCLPP_INLINE void trap() {
#if defined(__CUDA_ARCH__)
  asm volatile("trap;");
#else
  __builtin_trap();
#endif
}

}  // namespace mscclpp::arch
