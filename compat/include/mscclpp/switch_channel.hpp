// MSCCL++'s switch channels.
#pragma once

#include "mscclpp/core.hpp"
#include "mscclpp/gpu.hpp"
#include "mscclpp/gpu_utils.hpp"
#include "mscclpp/host/channel/nvls.hpp"
#include "mscclpp/host/channel/switch_channel.hpp"
#include "mscclpp/switch_channel_device.hpp"
