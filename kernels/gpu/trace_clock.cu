// The kernel that tells a trace the GPU's time.
#include "mscclpp/trace_clock.cuh"
#include "trace_clock.hpp"

namespace mscclpp::kernels::gpu {

void answerClock(ClockExchange* exchange) {
  answerClockOnGpu(exchange);
}

}  // namespace mscclpp::kernels::gpu
