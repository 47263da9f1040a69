// The implementation of RegisteredMemory, at its owner and at its peers, and its serialised form.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "host/base/deadline.hpp"
#include "host/base/process_identity.hpp"
#include "host/memory/memory_transport.hpp"
#include "mscclpp/host/base/transport.hpp"
#include "mscclpp/host/transport/registered_memory.hpp"

namespace mscclpp::detail {

struct MemoryRegistration {
  // The part that is serialised.
  std::uint64_t hostHash = 0;
  Id128 process{};
  /// The address in the owner's process.
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  /// One for each transport that it was registered for, in the order in which a peer tries them.
  std::vector<MemoryHandle> handles;
  /// Identifies the registration in the owner's process.
  Id128 id{};

  // The part that is specific to this process.
  /// Where the memory can be used here, or null.
  void* data = nullptr;
  /// The transports of the handles that reach the memory from here.
  TransportFlags transports;
  /// Keep the memory exported (owner) or mapped (peer).
  std::vector<std::shared_ptr<const void>> owners;

  std::vector<char> serialize() const;
  /// Fills in the serialised part, and `transports` with those of all handles. Throws Error(InvalidUsage) for bytes
  /// that serialize did not produce.
  static MemoryRegistration deserialize(const std::vector<char>& bytes);
};

[[noreturn]] void throwEmptyMemory();

/// Throws Error(InvalidUsage) for an empty one.
inline const MemoryRegistration& registrationOf(const RegisteredMemory& memory) {
  if (!memory.registration()) throwEmptyMemory();
  return *memory.registration();
}

/// RegisteredMemory::deserialize with a deadline for the owner's reply.
RegisteredMemory deserializeMemory(const std::vector<char>& bytes, const Deadline& deadline);

/// Makes memory that this process has registered accessible to the current device, as deserialising it would: for a
/// registration that is passed within a process without serialisation. No effect on a peer's memory.
void enableDeviceAccess(const RegisteredMemory& memory);

/// Whether memory that this process has registered for transports that map it still is the allocation that was
/// registered. False once it has been freed, even if its address has been allocated again.
bool isAllocated(const RegisteredMemory& memory);

}  // namespace mscclpp::detail
