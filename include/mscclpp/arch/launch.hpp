// Programmatic dependent launch: a kernel starts while the previous one of its stream ends (sm_90 and newer).
#pragma once

#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// Lets blocks of the next kernel of the stream start as multiprocessors become free, if it was launched with the
/// programmaticStreamSerialization attribute. Orders no memory accesses.
MSCCLPP_INLINE void launchDependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Waits until the kernels that this one depends on have completed and their writes are visible. Must precede every
/// access to memory that they or their peers access. Returns at once in a kernel launched without the attribute.
MSCCLPP_INLINE void waitForPrerequisites() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace mscclpp::arch
