#include "host/transport/verbs/device_list.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <sstream>
#include <string_view>

#include "host/cuda/gpu_backend.hpp"
#include "host/transport/verbs/ibv_symbols.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/transport/ib_devices.hpp"

namespace mscclpp {

namespace detail::ib {

namespace {

bool isDigit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// Digit sequences compare as numbers, everything else as characters.
bool naturalLess(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    if (isDigit(a[0]) && isDigit(b[0])) {
      const auto runA = std::find_if_not(a.begin(), a.end(), isDigit) - a.begin();
      const auto runB = std::find_if_not(b.begin(), b.end(), isDigit) - b.begin();
      const std::string_view numberA = a.substr(0, runA);
      const std::string_view numberB = b.substr(0, runB);
      if (numberA != numberB) return numberA.size() != numberB.size() ? runA < runB : numberA < numberB;
      a.remove_prefix(runA);
      b.remove_prefix(runB);
    } else {
      if (a[0] != b[0]) return a[0] < b[0];
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  return a.size() < b.size();
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

std::vector<std::string> presentDevices() {
  const IbvSymbols* functions = findIbvSymbols();
  if (functions == nullptr) return {};
  int count = 0;
  ibv_device** list = functions->getDeviceList(&count);
  if (list == nullptr) {
    if (errno == ENOSYS) return {};  // a kernel without RDMA support
    throw IbError("listing the verbs devices", errno);
  }
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace_back(functions->getDeviceName(list[i]));
  functions->freeDeviceList(list);
  return names;
}

}  // namespace

std::vector<std::string> orderDevices(std::vector<std::string> present, const std::string& chosen) {
  if (chosen.empty()) {
    std::sort(present.begin(), present.end(), naturalLess);
    return present;
  }
  std::vector<std::string> ordered;
  std::istringstream items(chosen);
  for (std::string name; std::getline(items, name, ',');) {
    if (std::find(present.begin(), present.end(), name) == present.end()) {
      std::sort(present.begin(), present.end(), naturalLess);
      throw Error("MSCCLPP_HCA_DEVICES=" + chosen + ": there is no verbs device '" + name +
                      "'; this host has: " + join(present),
                  ErrorCode::InvalidUsage);
    }
    ordered.push_back(name);
  }
  return ordered;
}

std::vector<std::string> deviceNames() {
  return orderDevices(presentDevices(), env()->hcaDevices);
}

int nearestDevice(const Sysfs& sysfs, const std::vector<std::string>& devices, const std::string& busId, int gpu) {
  std::vector<PciDistance> distances;
  for (const auto& device : devices) distances.push_back(sysfs.distance(device, busId));
  const PciDistance least = *std::min_element(distances.begin(), distances.end());
  std::vector<int> nearest;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (distances[i] == least) nearest.push_back(static_cast<int>(i));
  }
  return nearest[static_cast<std::size_t>(gpu) % nearest.size()];
}

}  // namespace detail::ib

namespace {

constexpr int maxDevices = 8;  // IB0 to IB7

Transport transportOf(int index) {
  return static_cast<Transport>(static_cast<int>(Transport::IB0) + index);
}

}  // namespace

int getIBDeviceCount() {
  return static_cast<int>(detail::ib::deviceNames().size());
}

std::string getIBDeviceName(Transport ibTransport) {
  if (!AllIBTransports.has(ibTransport)) {
    throw Error("getIBDeviceName: " + nameOf(ibTransport) + " is not one of IB0 to IB7", ErrorCode::InvalidUsage);
  }
  const auto devices = detail::ib::deviceNames();
  const int index = static_cast<int>(ibTransport) - static_cast<int>(Transport::IB0);
  if (index >= static_cast<int>(devices.size())) {
    throw Error("there is no verbs device for " + nameOf(ibTransport) + ": this host has " + detail::ib::join(devices) +
                    " (ibv_devinfo lists them; MSCCLPP_HCA_DEVICES chooses among them)",
                ErrorCode::InvalidUsage);
  }
  return devices[static_cast<std::size_t>(index)];
}

Transport getIBTransportByDeviceName(const std::string& ibDeviceName) {
  const auto devices = detail::ib::deviceNames();
  const auto found = std::find(devices.begin(), devices.end(), ibDeviceName) - devices.begin();
  if (found == static_cast<std::ptrdiff_t>(devices.size()) || found >= maxDevices) {
    throw Error("the verbs device '" + ibDeviceName + "' is not among IB0 to IB7, which are " +
                    detail::ib::join(devices) + "; MSCCLPP_HCA_DEVICES chooses others",
                ErrorCode::InvalidUsage);
  }
  return transportOf(static_cast<int>(found));
}

Transport nearestIBTransport(const Device& device) {
  auto devices = detail::ib::deviceNames();
  if (devices.size() > maxDevices) devices.resize(maxDevices);
  if (devices.empty()) {
    throw Error("nearestIBTransport: this host has no verbs device (ibv_devinfo lists them)", ErrorCode::InvalidUsage);
  }
  if (device.type == DeviceType::CPU) return Transport::IB0;
  const int gpu = device.id < 0 ? detail::currentGpu() : device.id;
  detail::checkGpu(gpu);
  return transportOf(detail::ib::nearestDevice(detail::ib::Sysfs(), devices, detail::gpuPciBusId(gpu), gpu));
}

}  // namespace mscclpp
