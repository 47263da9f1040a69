// Which of nvcc's two passes over a source this is: nvcc compiles every source for the host and for each GPU.
#pragma once

namespace mscclpp::arch {

/// Whether this is code for a GPU: nvcc's device pass, or NVRTC. The host pass needs the body of no kernel, so
/// `if constexpr (devicePass)` around one spares it from instantiating what the kernel calls.
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
inline constexpr bool devicePass = true;
#else
inline constexpr bool devicePass = false;
#endif

}  // namespace mscclpp::arch
