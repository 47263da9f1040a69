// Programmatic dependent launch: a kernel's start overlaps the end of the one before it in its stream (sm_90 and newer).
#pragma once

#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// Lets the next kernel of the stream start its blocks as room appears, if it was launched with that attribute. Orders nothing.
MSCCLPP_INLINE void launchDependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Waits until the kernels that this one depends on have ended and their writes are visible. Must precede every access to memory that they or their
/// peers touch. Returns at once in a kernel launched without the attribute.
MSCCLPP_INLINE void waitForPrerequisites() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace mscclpp::arch
