// A pair of counters, one at each end of a connection, with which the two ends signal each other.
#pragma once

#include <memory>
#include <vector>

#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/transport/connection.hpp"
#include "mscclpp/host/transport/registered_memory.hpp"

namespace mscclpp {

class Communicator;
class WaitMonitor;

namespace detail {
class Deadline;
}

/// One end of a semaphore before the two are connected: an 8-byte counter, initially zero, in the memory of the
/// connection's local device. The peer increments it.
class SemaphoreStub {
 public:
  /// Takes a counter from the connection's context; the last copy of the stub returns it.
  explicit SemaphoreStub(const Connection& connection);

  /// The counter: this rank's, or the peer's, mapped, after `deserialize`.
  const RegisteredMemory& memory() const noexcept { return memory_; }
  /// The device whose memory holds the counter.
  const Device& device() const noexcept { return device_; }

  std::vector<char> serialize() const;
  /// Throws Error(InvalidUsage) for bytes that are not a serialised stub, and what RegisteredMemory::deserialize
  /// throws.
  static SemaphoreStub deserialize(const std::vector<char>& data);

 private:
  friend class Communicator;
  friend class Semaphore;
  SemaphoreStub() = default;
  static SemaphoreStub deserializeBefore(const std::vector<char>& data, const detail::Deadline& deadline);

  Connection connection_;
  RegisteredMemory memory_;
  Device device_;
};

/// A local and a remote counter, bound to a connection. Cheap to copy. The classes in memory_semaphore.hpp and
/// host_semaphore.hpp signal and wait on it.
class Semaphore {
 public:
  /// Empty.
  Semaphore() = default;
  /// `local` was created here from a connection; `remote` came from the peer of that connection, serialised or, within
  /// a process, as an object, whose counter then becomes accessible to the current device.
  Semaphore(const SemaphoreStub& local, const SemaphoreStub& remote);
  /// The same, with the monitor that aborts and reports failed waits, and the ranks that the report names.
  Semaphore(const SemaphoreStub& local, const SemaphoreStub& remote, std::shared_ptr<WaitMonitor> monitor, int rank,
            int peer);

  /// Not const, as in MSCCL++: callers pass it to functions that modify the connection.
  Connection& connection() noexcept { return connection_; }
  /// The counter that the peer increments.
  const RegisteredMemory& localMemory() const noexcept { return local_; }
  /// The counter that this rank increments.
  const RegisteredMemory& remoteMemory() const noexcept { return remote_; }
  /// Null if the semaphore was not built by a communicator.
  const std::shared_ptr<WaitMonitor>& monitor() const noexcept { return monitor_; }
  /// This rank and its peer; -1 if unknown.
  int rank() const noexcept { return rank_; }
  int peer() const noexcept { return peer_; }

 private:
  Connection connection_;
  RegisteredMemory local_;
  RegisteredMemory remote_;
  std::shared_ptr<WaitMonitor> monitor_;
  int rank_ = -1;
  int peer_ = -1;
};

}  // namespace mscclpp
