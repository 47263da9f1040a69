// Events of CUDA streams.
#pragma once

#include "kernels/stream_events.hpp"

namespace mscclpp::kernels::gpu {

StreamEvents& streamEvents();

}  // namespace mscclpp::kernels::gpu
