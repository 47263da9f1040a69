// MSCCL++'s names for the device side of port channels.
#pragma once

#include "mscclpp/channel/port.hpp"
#include "mscclpp/fifo_device.hpp"
#include "mscclpp/semaphore_device.hpp"

namespace mscclpp {

using BasePortChannelDeviceHandle = BasePortChannelHandle;
using PortChannelDeviceHandle = PortChannelHandle;
using BaseProxyChannelDeviceHandle [[deprecated("use BasePortChannelDeviceHandle")]] = BasePortChannelHandle;
using ProxyChannelDeviceHandle [[deprecated("use BasePortChannelDeviceHandle")]] = BasePortChannelHandle;
using SimpleProxyChannelDeviceHandle [[deprecated("use PortChannelDeviceHandle")]] = PortChannelHandle;

}  // namespace mscclpp
