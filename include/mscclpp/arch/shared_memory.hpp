// Shared memory of a block: addresses for instructions, and the dynamic part.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

#if defined(__CUDA_ARCH__)
namespace ptx {

/// The 32-bit address of the shared state space that PTX instructions take.
MSCCLPP_DEVICE __forceinline__ std::uint32_t sharedAddress(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace ptx

/// The dynamic shared memory of the block, aligned to 128 bytes; the launch sets its size. GPU only: the blocks of
/// emulation have theirs in their Grid.
MSCCLPP_DEVICE __forceinline__ std::byte* dynamicSharedMemory() {
  extern __shared__ __align__(128) unsigned char mscclppDynamicShared[];
  return reinterpret_cast<std::byte*>(mscclppDynamicShared);
}
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
MSCCLPP_DEVICE std::byte* dynamicSharedMemory();
#endif

}  // namespace mscclpp::arch
