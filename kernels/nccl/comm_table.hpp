// The communicators of this process by their handles: a handle of another library, or of a communicator that was
// destroyed, is an error and nothing worse.
#pragma once

#include <memory>

#include "kernels/nccl/comm.hpp"
#include "kernels/nccl/types.hpp"

namespace mscclpp::nccl {

/// Null for a null pointer.
ncclComm_t addComm(std::shared_ptr<Comm> comm);

/// Keeps the communicator alive while the caller uses it. Throws ncclInvalidArgument if there is none.
std::shared_ptr<Comm> findComm(ncclComm_t handle);

/// The same; later calls find none.
std::shared_ptr<Comm> removeComm(ncclComm_t handle);

}  // namespace mscclpp::nccl
