// A piece of memory that peers may reach, as its owner and as its peers see it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "mscclpp/host/transport.hpp"

namespace mscclpp {

namespace detail {
class ConnectionBase;
class Deadline;
}  // namespace detail

/// Made by Context::registerMemory on the owner's side and by `deserialize` on a peer's. A cheap value: copies stand
/// for the same registration, which ends with the last of them. The owner keeps it (and the memory) alive for as long
/// as peers may still deserialise it; a peer's keeps the memory mapped.
class RegisteredMemory {
 public:
  /// Stands for nothing; every accessor but `data` and `size` throws Error(InvalidUsage).
  RegisteredMemory() = default;

  /// Where the memory can be used in this process: a host pointer, or a device pointer for the device that was current
  /// at registration or deserialisation. Null for a peer's memory that cannot be mapped: registered with NoTransports,
  /// or within reach of a network alone.
  void* data() const noexcept;
  /// The address in the process that owns the memory.
  void* originalDataPtr() const;
  /// In bytes.
  std::size_t size() const noexcept;
  /// How it can be reached from here.
  TransportFlags transports() const;

  /// Bytes for the peers; the secret tokens in it let any process of this user map the memory.
  std::vector<char> serialize() const;
  /// Maps what `serialize` of another rank (or of this one) describes. GPU memory becomes accessible to the current
  /// device. Throws Error(InvalidUsage) for bytes that are no serialised memory or memory of another host,
  /// Error(RemoteError) if its owner has withdrawn it, Error(Timeout) if it has not answered for
  /// MSCCLPP_BOOTSTRAP_TIMEOUT.
  static RegisteredMemory deserialize(const std::vector<char>& data);

 private:
  friend class Communicator;
  friend class Context;
  friend class SemaphoreStub;
  friend class detail::ConnectionBase;
  struct State;
  explicit RegisteredMemory(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const State& state() const;
  [[noreturn]] static void throwEmpty();
  static RegisteredMemory deserialize(const std::vector<char>& data, const detail::Deadline& deadline);

  std::shared_ptr<const State> state_;
};

}  // namespace mscclpp
