// What the ranks of a moe::Buffer have in common.
#pragma once

#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/kernels/moe_buffer.hpp"

namespace mscclpp::moe::detail {

/// Collective. Throws on all ranks unless the configuration of each is valid, and all are the same:
/// Error(InvalidUsage), or Error(RemoteError) where only another rank's is invalid.
void requireSameConfig(Communicator& communicator, const BufferConfig& config, DeviceType where);

}  // namespace mscclpp::moe::detail
