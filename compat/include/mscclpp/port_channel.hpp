// MSCCL++'s port channels and the service behind them.
#pragma once

#include "mscclpp/core.hpp"
#include "mscclpp/gpu_utils.hpp"
#include "mscclpp/host/proxy/port_channel.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"
#include "mscclpp/port_channel_device.hpp"
#include "mscclpp/proxy.hpp"
#include "mscclpp/semaphore.hpp"
