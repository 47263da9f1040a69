#include "mscclpp/host/base/transport.hpp"

#include <ostream>

#include "mscclpp/host/base/device.hpp"

namespace mscclpp {

std::string nameOf(Transport transport) {
  switch (transport) {
    case Transport::CudaIpc:
      return "CudaIpc";
    case Transport::Ethernet:
      return "Ethernet";
    case Transport::SharedMemory:
      return "SharedMemory";
    case Transport::IB0:
    case Transport::IB1:
    case Transport::IB2:
    case Transport::IB3:
    case Transport::IB4:
    case Transport::IB5:
    case Transport::IB6:
    case Transport::IB7:
      return "IB" + std::to_string(static_cast<int>(transport) - static_cast<int>(Transport::IB0));
    case Transport::Unknown:
    case Transport::NumTransports:
      break;
  }
  return "Unknown";
}

std::string nameOf(TransportFlags flags) {
  std::string text;
  for (int index = 0; index < static_cast<int>(Transport::NumTransports); ++index) {
    const auto transport = static_cast<Transport>(index);
    if (!flags.has(transport)) continue;
    if (!text.empty()) text += '|';
    text += nameOf(transport);
  }
  return text.empty() ? "none" : text;
}

std::ostream& operator<<(std::ostream& out, Transport transport) {
  switch (transport) {
    case Transport::CudaIpc:
      return out << "IPC";
    case Transport::Ethernet:
      return out << "ETH";
    case Transport::SharedMemory:
      return out << "SHM";
    case Transport::Unknown:
      return out << "UNK";
    default:
      return out << nameOf(transport);
  }
}

std::string nameOf(DeviceType type) {
  switch (type) {
    case DeviceType::CPU:
      return "CPU";
    case DeviceType::GPU:
      return "GPU";
    case DeviceType::Unknown:
      break;
  }
  return "UNK";
}

std::string nameOf(const Device& device) {
  return device.id < 0 ? nameOf(device.type) : nameOf(device.type) + " " + std::to_string(device.id);
}

std::ostream& operator<<(std::ostream& out, DeviceType type) {
  return out << nameOf(type);
}
std::ostream& operator<<(std::ostream& out, const Device& device) {
  return out << nameOf(device);
}

}  // namespace mscclpp
