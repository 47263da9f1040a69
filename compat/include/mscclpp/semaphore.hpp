// MSCCL++'s semaphores.
#pragma once

#include "mscclpp/core.hpp"
#include "mscclpp/host/host_semaphore.hpp"
#include "mscclpp/host/memory_semaphore.hpp"
#include "mscclpp/semaphore_device.hpp"
