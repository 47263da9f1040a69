// MSCCL++'s names for the device side of switch channels.
#pragma once

#include "mscclpp/channel/switch.hpp"
#include "mscclpp/gpu.hpp"
#include "mscclpp/gpu_data_types.hpp"
#include "mscclpp/semaphore_device.hpp"

namespace mscclpp {

using SwitchChannelDeviceHandle = SwitchChannelHandle;

}  // namespace mscclpp
