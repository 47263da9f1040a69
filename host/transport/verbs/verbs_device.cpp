#include "host/transport/verbs/verbs_device.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail::ib {

namespace {

[[noreturn]] void invalidDevice(const std::string& message) {
  throw Error(message, ErrorCode::InvalidUsage);
}

// The device's table of extended functions, if it contains query_port: new entries are added at its front.
verbs_context* extendedBy(ibv_context* context) {
  verbs_context* table = verbs_get_ctx(context);
  const bool reaches = table != nullptr && table->sz >= sizeof(*table) - offsetof(verbs_context, query_port);
  return reaches && table->query_port != nullptr ? table : nullptr;
}

}  // namespace

std::shared_ptr<VerbsDevice> VerbsDevice::open(const std::string& name) {
  int count = 0;
  ibv_device** list = ibvSymbols().getDeviceList(&count);
  if (list == nullptr) throw IbError("listing the verbs devices", errno);
  const std::unique_ptr<ibv_device*[], void (*)(ibv_device**)> owner(
      list, [](ibv_device** devices) { ibvSymbols().freeDeviceList(devices); });
  for (int i = 0; i < count; ++i) {
    if (name != ibvSymbols().getDeviceName(list[i])) continue;
    IbvPtr<ibv_context> context(ibvSymbols().openDevice(list[i]));
    if (!context) throw IbError("opening the verbs device " + name + ", as this user", errno);
    return std::shared_ptr<VerbsDevice>(new VerbsDevice(name, std::move(context)));
  }
  invalidDevice("there is no verbs device " + name + "; ibv_devinfo lists those of this host");
}

VerbsDevice::VerbsDevice(std::string name, IbvPtr<ibv_context> context)
    : name_(std::move(name)), context_(std::move(context)) {
  if (const int failure = ibvSymbols().queryDevice(context_.get(), &attributes_); failure != 0) {
    throw IbError("querying the properties of " + name_, failure);
  }
  domain_.reset(ibvSymbols().allocPd(context_.get()));
  if (!domain_) throw IbError("allocating a protection domain of " + name_, errno);
}

ibv_port_attr VerbsDevice::queryPort(int port) const {
  ibv_port_attr attributes{};
  // Newer drivers fill in all fields; the exported symbol fills in only those of the first version.
  const auto number = static_cast<std::uint8_t>(port);
  verbs_context* extended = extendedBy(context_.get());
  const int failure =
      extended != nullptr
          ? extended->query_port(context_.get(), number, &attributes, sizeof(attributes))
          : ibvSymbols().queryPort(context_.get(), number, reinterpret_cast<_compat_ibv_port_attr*>(&attributes));
  if (failure != 0) throw IbError("querying the state of port " + std::to_string(port) + " of " + name_, failure);
  return attributes;
}

Port VerbsDevice::port(int port, int gidIndex) const {
  const int ports = attributes_.phys_port_cnt;
  if (port == 0 || port > ports) {
    invalidDevice(name_ + " has no port " + std::to_string(port) + ": its ports are 1 to " + std::to_string(ports));
  }
  Port chosen{};
  for (int number = std::max(port, 1); number <= (port < 0 ? ports : port) && chosen.number == 0; ++number) {
    chosen.attributes = queryPort(number);
    if (chosen.attributes.state == IBV_PORT_ACTIVE) chosen.number = static_cast<std::uint8_t>(number);
  }
  if (chosen.number == 0) {
    invalidDevice((port < 0 ? "no port of " + name_ : "port " + std::to_string(port) + " of " + name_) +
                  " is active; check the cable and the link (ibv_devinfo shows the state)");
  }
  const Sysfs sysfs;
  const auto entry = gidIndex < 0 ? sysfs.bestGid(name_, chosen.number) : sysfs.gidAt(name_, chosen.number, gidIndex);
  if (!entry && gidIndex >= 0) {
    std::string present;
    for (const auto& candidate : sysfs.gids(name_, chosen.number)) {
      present += (present.empty() ? "" : ", ") + std::to_string(candidate.index) + " (" + nameOf(candidate.gid) + ")";
    }
    invalidDevice("port " + std::to_string(chosen.number) + " of " + name_ + " has no GID " + std::to_string(gidIndex) +
                  "; it has " + (present.empty() ? "none" : present));
  }
  if (!entry && chosen.ethernet()) {
    invalidDevice("port " + std::to_string(chosen.number) + " of " + name_ +
                  " has no GID, without which RoCE cannot address it; give its network interface an IP address");
  }
  chosen.gidIndex = entry ? entry->index : -1;
  if (entry) chosen.gid = entry->gid;
  return chosen;
}

std::string nameOf(const VerbsDevice& device, const Port& port) {
  return device.name() + " port " + std::to_string(port.number);
}

}  // namespace mscclpp::detail::ib
