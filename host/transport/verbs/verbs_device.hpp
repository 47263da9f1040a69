// An opened verbs device and the port that is used of it.
#pragma once

#include <memory>
#include <string>

#include "library.hpp"
#include "sysfs.hpp"

namespace mscclpp::detail::ib {

/// A port that is up, and the address under which it is reached.
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
  /// Whether a fetch-and-add by this device is atomic for all who reach the word through it.
  bool hasAtomics() const noexcept { return attributes_.atomic_cap != IBV_ATOMIC_NONE; }

  /// `port` -1: the first that is active. `gidIndex` -1: chosen as sysfs.hpp says. Throws Error(InvalidUsage) for a port
  /// or GID that does not exist or is not active.
  Port port(int port, int gidIndex) const;

 private:
  VerbsDevice(std::string name, Owner<ibv_context> context);
  ibv_port_attr queryPort(int port) const;

  std::string name_;
  Owner<ibv_context> context_;
  Owner<ibv_pd> domain_;
  ibv_device_attr attributes_{};
};

/// "rxe0 port 1".
std::string nameOf(const VerbsDevice& device, const Port& port);

}  // namespace mscclpp::detail::ib
