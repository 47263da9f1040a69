// The kernel that synchronises a trace's clock with the GPU's.
#pragma once

#include "mscclpp/basic/clock_sync.hpp"

namespace mscclpp::kernels::gpu {

/// Launches it on the current device. Throws CudaError.
void launchClockSync(ClockSync* exchange);

}  // namespace mscclpp::kernels::gpu
