// Stores of several flags behind one fence.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/order.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// Stores a flag that publishes what came before a fence<scope>() of the calling thread: relaxed on a GPU, where a
/// release store for each of several flags would wait for the one before; with release on a CPU, since ThreadSanitizer
/// does not model fences.
template <Scope scope, class T>
MSCCLPP_INLINE void storeBehindFence(T* address, T value) {
#if defined(__CUDA_ARCH__)
  store<Order::Relaxed, scope>(address, value);
#else
  store<Order::Release, scope>(address, value);
#endif
}

}  // namespace mscclpp::arch
