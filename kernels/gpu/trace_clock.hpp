// The kernel that tells a trace the GPU's time.
#pragma once

#include "mscclpp/basic/clock_exchange.hpp"

namespace mscclpp::kernels::gpu {

/// Starts it on the current device.
void answerClock(ClockExchange* exchange);

}  // namespace mscclpp::kernels::gpu
