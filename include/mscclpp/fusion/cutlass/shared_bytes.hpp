// How much shared memory kernels of CUTLASS can have.
#pragma once

namespace mscclpp::detail {

/// Of a block, on a GPU of compute capability 9.0.
inline constexpr int largestSharedBytes = 227 * 1024;

}  // namespace mscclpp::detail
