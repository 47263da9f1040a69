// MSCCL++'s names for the device side of memory channels.
#pragma once

#include "mscclpp/channel/memory.hpp"
#include "mscclpp/copy_device.hpp"
#include "mscclpp/packet_device.hpp"
#include "mscclpp/semaphore_device.hpp"

namespace mscclpp {

using BaseMemoryChannelDeviceHandle = BaseMemoryChannelHandle;
using MemoryChannelDeviceHandle = MemoryChannelHandle;
using BaseSmChannelDeviceHandle [[deprecated("use BaseMemoryChannelDeviceHandle")]] = BaseMemoryChannelHandle;
using SmChannelDeviceHandle [[deprecated("use MemoryChannelDeviceHandle")]] = MemoryChannelHandle;
using SimpleSmChannelDeviceHandle [[deprecated("use MemoryChannelDeviceHandle")]] = MemoryChannelHandle;

}  // namespace mscclpp
