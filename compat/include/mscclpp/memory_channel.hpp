// MSCCL++'s memory channels.
#pragma once

#include "mscclpp/host/memory_channel.hpp"
#include "mscclpp/memory_channel_device.hpp"
#include "mscclpp/semaphore.hpp"

namespace mscclpp {

using SimpleSmChannel [[deprecated("use MemoryChannel")]] = MemoryChannel;

}  // namespace mscclpp
