// Memory that peers can map, on the CPU or a GPU.
#pragma once

#include <cstddef>
#include <memory>

#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/base/transport.hpp"

namespace mscclpp::detail {

/// The transport over which ranks of one host access memory of such a device.
Transport localTransport(DeviceType type);

/// Allocates `bytes` > 0 of zero-filled memory that can be registered with localTransport(device.type).
std::shared_ptr<void> allocateSharedMemory(const Device& device, std::size_t bytes);

/// Allocates `bytes` > 0 of zero-filled memory for local use only.
std::shared_ptr<void> allocatePrivateMemory(const Device& device, std::size_t bytes);

/// Sets every byte to `byte`; complete on return.
void fillMemory(const Device& device, void* data, int byte, std::size_t bytes);

/// Copies host memory to memory of the device; complete on return.
void writeMemory(const Device& device, void* to, const void* from, std::size_t bytes);

}  // namespace mscclpp::detail
