// The kernel that synchronises a trace's clock with the GPU's.
#include "clock_sync.hpp"
#include "mscclpp/clock_sync.cuh"

namespace mscclpp::kernels::gpu {

void launchClockSync(ClockSync* exchange) {
  launchClockSyncOnGpu(exchange);
}

}  // namespace mscclpp::kernels::gpu
