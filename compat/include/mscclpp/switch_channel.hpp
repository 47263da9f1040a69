// MSCCL++'s switch channels.
#pragma once

#include "mscclpp/core.hpp"
#include "mscclpp/gpu.hpp"
#include "mscclpp/host/nvls.hpp"
#include "mscclpp/host/switch_channel.hpp"
#include "mscclpp/switch_channel_device.hpp"
