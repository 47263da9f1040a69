// What a serialised registration says about memory that TCP reaches.
#pragma once

#include <cstdint>
#include <cstring>

#include "../../memory_transport.hpp"

namespace mscclpp::detail::tcp {

/// The handle's `allocation` is the name by which the owner knows the registration; its `access` is this.
struct MemoryName {
  /// -1: host memory. Only the owner's process uses it.
  std::int32_t gpu;
  /// Where the name is known.
  Id128 network;

  static MemoryHandle handle(const Id128& name, std::size_t size, int gpu, const Id128& network) {
    MemoryHandle handle{};
    handle.kind = HandleKind::Tcp;
    handle.transport = Transport::Ethernet;
    handle.allocationBytes = size;
    handle.allocation = name;
    const MemoryName self{gpu, network};
    static_assert(sizeof(self) <= sizeof(handle.access));
    std::memcpy(handle.access.data(), &self, sizeof(self));
    return handle;
  }
  static MemoryName of(const MemoryHandle& handle) {
    MemoryName name;
    std::memcpy(&name, handle.access.data(), sizeof(name));
    return name;
  }
};

}  // namespace mscclpp::detail::tcp
