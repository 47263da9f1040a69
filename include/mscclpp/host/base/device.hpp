// A device: the CPU or one of the GPUs.
#pragma once

#include <iosfwd>
#include <string>

#include "mscclpp/config.hpp"

namespace mscclpp {

enum class DeviceType { Unknown, CPU, GPU };

struct Device {
  DeviceType type = DeviceType::Unknown;
  /// The CUDA device; -1 means the current one for a GPU, and is ignored for the CPU.
  int id = -1;

  constexpr Device() = default;
  constexpr Device(DeviceType deviceType, int deviceId = -1) : type(deviceType), id(deviceId) {}  // NOLINT: implicit

  friend constexpr bool operator==(const Device&, const Device&) = default;
};

/// "CPU", "GPU", "UNK".
std::string nameOf(DeviceType type);
/// "CPU", or "GPU 3".
std::string nameOf(const Device& device);
std::ostream& operator<<(std::ostream& out, DeviceType type);
std::ostream& operator<<(std::ostream& out, const Device& device);

}  // namespace mscclpp
