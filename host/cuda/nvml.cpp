#include "host/cuda/nvml.hpp"

#include <dlfcn.h>

#include <memory>
#include <type_traits>

namespace mscclpp::detail {

namespace {

// NVML's ABI, which is stable: handles are pointers, results are ints with 0 for success.
using Device = void*;
constexpr int success = 0;
constexpr unsigned maxLinks = 18;
constexpr int linkUp = 1;
constexpr int remoteIsSwitch = 2;
constexpr int capabilityNvlink = 2;
constexpr int statusOk = 0;

}  // namespace

struct Nvml::Functions {
  int (*init)();
  int (*shutdown)();
  int (*deviceByBusId)(const char* busId, Device* device);
  int (*linkState)(Device device, unsigned link, int* state);
  int (*linkVersion)(Device device, unsigned link, unsigned* version);
  int (*linkRemoteType)(Device device, unsigned link, int* type);
  int (*p2pStatus)(Device a, Device b, int capability, int* status);

  Device find(const std::string& busId) const {
    Device device = nullptr;
    return deviceByBusId(busId.c_str(), &device) == success ? device : nullptr;
  }
};

Nvml::Nvml() {
  library_ = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) {
    error_ = "no libnvidia-ml.so.1 (it comes with the driver)";
    return;
  }
  auto functions = std::make_unique<Functions>();
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library_, name));
    if (function == nullptr && error_.empty()) error_ = std::string("libnvidia-ml.so.1 has no ") + name;
  };
  load(functions->init, "nvmlInit_v2");
  load(functions->shutdown, "nvmlShutdown");
  load(functions->deviceByBusId, "nvmlDeviceGetHandleByPciBusId_v2");
  load(functions->linkState, "nvmlDeviceGetNvLinkState");
  load(functions->linkVersion, "nvmlDeviceGetNvLinkVersion");
  load(functions->linkRemoteType, "nvmlDeviceGetNvLinkRemoteDeviceType");
  load(functions->p2pStatus, "nvmlDeviceGetP2PStatus");
  if (!error_.empty()) return;
  if (const int result = functions->init(); result != success) {
    error_ = "nvmlInit failed with " + std::to_string(result);
    return;
  }
  functions_ = functions.release();
}

Nvml::~Nvml() {
  if (functions_ != nullptr) functions_->shutdown();
  delete functions_;
  if (library_ != nullptr) ::dlclose(library_);
}

std::optional<NvLinks> Nvml::links(const std::string& pciBusId) const {
  if (functions_ == nullptr) return std::nullopt;
  const Device device = functions_->find(pciBusId);
  if (device == nullptr) return std::nullopt;
  NvLinks links{0, 0, false};
  for (unsigned link = 0; link < maxLinks; ++link) {
    int state = 0;
    if (functions_->linkState(device, link, &state) != success || state != linkUp) continue;
    ++links.active;
    unsigned version = 0;
    if (functions_->linkVersion(device, link, &version) == success) links.version = static_cast<int>(version);
    int type = 0;
    if (functions_->linkRemoteType(device, link, &type) == success) links.viaSwitch |= type == remoteIsSwitch;
  }
  return links;
}

std::optional<bool> Nvml::connectedByNvlink(const std::string& pciBusId, const std::string& other) const {
  if (functions_ == nullptr) return std::nullopt;
  const Device a = functions_->find(pciBusId);
  const Device b = functions_->find(other);
  int status = 0;
  if (a == nullptr || b == nullptr || functions_->p2pStatus(a, b, capabilityNvlink, &status) != success)
    return std::nullopt;
  return status == statusOk;
}

}  // namespace mscclpp::detail
