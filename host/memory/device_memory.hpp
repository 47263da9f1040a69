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

/// Fills with zeros; complete on return.
void zeroMemory(const Device& device, void* data, std::size_t bytes);

}  // namespace mscclpp::detail
