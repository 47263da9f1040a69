// What a RegisteredMemory stands for.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "memory_transport.hpp"
#include "mscclpp/host/registered_memory.hpp"

namespace mscclpp {

struct RegisteredMemory::State {
  /// Usable in this process, or null.
  void* data = nullptr;
  /// In the owner's process.
  std::uint64_t originalAddress = 0;
  std::size_t size = 0;
  TransportFlags transports;
  /// The ways to reach it, as the owner made them. A network transport in `transports` has its handle here.
  std::vector<detail::MemoryHandle> handles;
  std::vector<char> serialized;
  /// Keep the memory on offer (owner) or mapped (peer).
  std::vector<std::shared_ptr<const void>> owners;
};

inline const RegisteredMemory::State& RegisteredMemory::state() const {
  if (!state_) throwEmpty();
  return *state_;
}

}  // namespace mscclpp
