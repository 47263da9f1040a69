// MSCCL++'s names for the device side of semaphores.
#pragma once

#include "mscclpp/atomic_device.hpp"
#include "mscclpp/poll_device.hpp"
#include "mscclpp/sync/host_semaphore.hpp"
#include "mscclpp/sync/semaphore.hpp"
#include "mscclpp/sync/switch_semaphore.hpp"

namespace mscclpp {

using Host2DeviceSemaphoreDeviceHandle = Host2DeviceSemaphoreHandle;
using MemoryDevice2DeviceSemaphoreDeviceHandle = SemaphoreHandle;
using SmDevice2DeviceSemaphoreDeviceHandle [[deprecated("use MemoryDevice2DeviceSemaphoreDeviceHandle")]] =
    SemaphoreHandle;
using SwitchDevice2DeviceSemaphoreDeviceHandle = SwitchSemaphoreHandle;

}  // namespace mscclpp
