// The fields of a serialised RegisteredMemory.
#pragma once

#include <cstdint>
#include <vector>

#include "memory_transport.hpp"
#include "mscclpp/host/registered_memory.hpp"
#include "mscclpp/host/transport.hpp"

namespace mscclpp::detail {

struct MemoryForm {
  std::uint64_t hostHash = 0;
  Id128 process{};
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  TransportFlags transports;
  /// In the order in which a peer should try them.
  std::vector<MemoryHandle> handles;
};

std::vector<char> writeMemory(const MemoryForm& memory);
/// Throws Error(InvalidUsage) for anything that writeMemory did not write.
MemoryForm readMemory(const std::vector<char>& bytes);

/// Makes memory that this process has registered for CudaIpc, perhaps of another of its GPUs, accessible to the current
/// device, as deserialising it would: for who hands a registration over within a process as it is.
void makeReachable(const RegisteredMemory& memory);

}  // namespace mscclpp::detail
