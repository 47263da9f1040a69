// A memory range that peers can access, at its owner and at its peers.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "mscclpp/host/base/transport.hpp"

namespace mscclpp {

namespace detail {
struct MemoryRegistration;
}  // namespace detail

/// Created by Context::registerMemory at the owner and by `deserialize` at a peer. Cheap to copy: copies refer to the
/// same registration, which ends with the last of them. The owner must keep it (and the memory) alive for as long as
/// peers may still deserialise it; a peer's copy keeps the memory mapped.
class RegisteredMemory {
 public:
  /// Empty; every accessor but `data` and `size` throws Error(InvalidUsage).
  RegisteredMemory() = default;
  /// Internal: host/transport/memory_registration.hpp has the type.
  explicit RegisteredMemory(std::shared_ptr<const detail::MemoryRegistration> registration)
      : registration_(std::move(registration)) {}

  /// Where the memory can be used in this process: a host pointer, or a device pointer for the device that was current
  /// at registration or deserialisation. Null for a peer's memory that cannot be mapped: registered with NoTransports,
  /// or reachable only over a network.
  void* data() const noexcept;
  /// The address in the process that owns the memory.
  void* originalDataPtr() const;
  /// In bytes.
  std::size_t size() const noexcept;
  /// The transports that reach it from here.
  TransportFlags transports() const;

  /// Bytes for the peers; the secret tokens in it let any process of this user map the memory.
  std::vector<char> serialize() const;
  /// Maps the memory that `serialize` of another rank (or of this one) describes. GPU memory becomes accessible to the
  /// current device. Throws Error(InvalidUsage) for bytes that are not a serialised memory, and for memory of another
  /// host that no network reaches; Error(RemoteError) if the owner has ended the registration, Error(Timeout) if the
  /// owner has not responded within MSCCLPP_BOOTSTRAP_TIMEOUT.
  static RegisteredMemory deserialize(const std::vector<char>& data);

  /// Internal; null if empty.
  const std::shared_ptr<const detail::MemoryRegistration>& registration() const noexcept { return registration_; }

 private:
  std::shared_ptr<const detail::MemoryRegistration> registration_;
};

}  // namespace mscclpp
