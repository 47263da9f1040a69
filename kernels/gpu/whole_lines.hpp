// Whether LL128 may be used between all GPUs of a team.
#pragma once

#include "mscclpp/host/bootstrap.hpp"

namespace mscclpp::kernels::gpu {

/// Collective, each rank with its GPU current; the same answer on every rank. MSCCLPP_LL128 overrides what the links say.
bool linesStayWhole(Bootstrap& bootstrap);

}  // namespace mscclpp::kernels::gpu
