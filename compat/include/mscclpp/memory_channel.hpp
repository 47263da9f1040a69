// MSCCL++'s memory channels.
#pragma once

#include "mscclpp/core.hpp"
#include "mscclpp/gpu_utils.hpp"
#include "mscclpp/host/channel/memory_channel.hpp"
#include "mscclpp/memory_channel_device.hpp"
#include "mscclpp/semaphore.hpp"

namespace mscclpp {

using SimpleSmChannel [[deprecated("use MemoryChannel")]] = MemoryChannel;

}  // namespace mscclpp
