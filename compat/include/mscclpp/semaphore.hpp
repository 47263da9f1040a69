// MSCCL++'s semaphores.
#pragma once

#include "mscclpp/core.hpp"
#include "mscclpp/gpu_utils.hpp"
#include "mscclpp/host/channel/host_semaphore.hpp"
#include "mscclpp/host/channel/memory_semaphore.hpp"
#include "mscclpp/semaphore_device.hpp"
