// An opened verbs device, and the port in use.
#pragma once

#include <memory>
#include <string>

#include "host/transport/verbs/ibv_symbols.hpp"
#include "host/transport/verbs/sysfs.hpp"

namespace mscclpp::detail::ib {

/// An active port, and its address.
struct Port {
  std::uint8_t number;
  ibv_port_attr attributes;
  /// -1 on an InfiniBand port that has no GID.
  int gidIndex;
  Gid gid;

  bool ethernet() const { return attributes.link_layer == IBV_LINK_LAYER_ETHERNET; }
};

class VerbsDevice {
 public:
  /// Throws Error(InvalidUsage) if there is no device of that name, IbError if it cannot be opened.
  static std::shared_ptr<VerbsDevice> open(const std::string& name);

  const std::string& name() const noexcept { return name_; }
  ibv_context* context() const noexcept { return context_.get(); }
  ibv_pd* domain() const noexcept { return domain_.get(); }
  const ibv_device_attr& attributes() const noexcept { return attributes_; }
  /// Whether a fetch-and-add is atomic with respect to all accesses through this device.
  bool hasAtomics() const noexcept { return attributes_.atomic_cap != IBV_ATOMIC_NONE; }

  /// `port` -1: the first active one. `gidIndex` -1: Sysfs::bestGid. Throws Error(InvalidUsage) for a port or GID that
  /// does not exist or is not active.
  Port port(int port, int gidIndex) const;

 private:
  VerbsDevice(std::string name, IbvPtr<ibv_context> context);
  ibv_port_attr queryPort(int port) const;

  std::string name_;
  IbvPtr<ibv_context> context_;
  IbvPtr<ibv_pd> domain_;
  ibv_device_attr attributes_{};
};

/// "rxe0 port 1".
std::string nameOf(const VerbsDevice& device, const Port& port);

}  // namespace mscclpp::detail::ib
