// Memory that peers can map, on whichever device a rank lives.
#pragma once

#include <cstddef>
#include <memory>

#include "mscclpp/host/device.hpp"
#include "mscclpp/host/transport.hpp"

namespace mscclpp::detail {

/// The transport by which ranks of one host reach memory of such a device.
Transport localTransport(DeviceType type);

/// `bytes` > 0 of zero-filled memory that can be registered with localTransport(device.type).
std::shared_ptr<void> allocateSharedMemory(const Device& device, std::size_t bytes);

/// Fills with zeros; done when it returns.
void zeroMemory(const Device& device, void* data, std::size_t bytes);

}  // namespace mscclpp::detail
