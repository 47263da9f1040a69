// MSCCL++'s names for the device side of a FIFO, and the widths of a trigger's fields.
#pragma once

#include "mscclpp/atomic_device.hpp"
#include "mscclpp/device.hpp"
#include "mscclpp/poll_device.hpp"
#include "mscclpp/sync/fifo.hpp"

namespace mscclpp {

using FifoDeviceHandle = FifoHandle;

inline constexpr unsigned int TriggerBitsSize = ProxyTrigger::bitsSize;
inline constexpr unsigned int TriggerBitsOffset = ProxyTrigger::bitsOffset;
inline constexpr unsigned int TriggerBitsMemoryId = ProxyTrigger::bitsMemoryId;
inline constexpr unsigned int TriggerBitsType = ProxyTrigger::bitsType;
inline constexpr unsigned int TriggerBitsSemaphoreId = ProxyTrigger::bitsSemaphoreId;
inline constexpr unsigned int TriggerBitsFifoReserved = 1;

}  // namespace mscclpp
