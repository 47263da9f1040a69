// The part of a serialised registration that describes memory reachable over TCP.
#pragma once

#include <cstdint>
#include <cstring>

#include "host/memory/memory_transport.hpp"

namespace mscclpp::detail::tcp {

/// `allocation` of the handle is the id under which the owner has registered the memory; `access` is this struct.
struct MemoryInfo {
  /// -1: host memory. Only the owner's process uses it.
  std::int32_t gpu;
  /// The network in which the id is registered.
  Id128 network;

  static MemoryHandle handle(const Id128& name, std::size_t size, int gpu, const Id128& network) {
    MemoryHandle handle{};
    handle.kind = HandleKind::Tcp;
    handle.transport = Transport::Ethernet;
    handle.allocationBytes = size;
    handle.allocation = name;
    const MemoryInfo self{gpu, network};
    static_assert(sizeof(self) <= sizeof(handle.access));
    std::memcpy(handle.access.data(), &self, sizeof(self));
    return handle;
  }
  static MemoryInfo of(const MemoryHandle& handle) {
    MemoryInfo name;
    std::memcpy(&name, handle.access.data(), sizeof(name));
    return name;
  }
};

}  // namespace mscclpp::detail::tcp
