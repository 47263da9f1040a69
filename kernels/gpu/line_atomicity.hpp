// Whether LL128 with atomic line stores may be used between all GPUs of a team.
#pragma once

#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::kernels::gpu {

/// Called by all ranks, each with its GPU current; the same result on every rank. MSCCLPP_LL128 overrides the
/// detection.
bool areLineStoresAtomic(Bootstrap& bootstrap);

}  // namespace mscclpp::kernels::gpu
