// How a call of a communication function gets from its caller to the communicator.
#pragma once

#include "kernels/nccl/api_call.hpp"

namespace mscclpp::nccl {

/// Checks a call and enqueues it: now, or with the group that is open in this thread. Nothing is thrown.
ncclResult_t submit(ncclComm_t comm, const ApiCall& call) noexcept;

}  // namespace mscclpp::nccl
