// A pair of counters, one at each end of a connection, by which the ends signal each other.
#pragma once

#include <memory>
#include <vector>

#include "mscclpp/host/connection.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/host/registered_memory.hpp"

namespace mscclpp {

class Communicator;
class WaitMonitor;

namespace detail {
class Deadline;
}

/// One end of a semaphore before the ends meet: an 8-byte counter, zero at first, in the memory of the connection's
/// local device. The peer increments it.
class SemaphoreStub {
 public:
  /// Takes a counter of the connection's context; it returns there with the last copy of the stub.
  explicit SemaphoreStub(const Connection& connection);

  /// The counter: this rank's, or the mapped peer's after `deserialize`.
  const RegisteredMemory& memory() const noexcept { return memory_; }
  /// Where the counter lives.
  const Device& device() const noexcept { return device_; }

  std::vector<char> serialize() const;
  /// Throws Error(InvalidUsage) for bytes that are no serialised stub, and what RegisteredMemory::deserialize throws.
  static SemaphoreStub deserialize(const std::vector<char>& data);

 private:
  friend class Communicator;
  friend class Semaphore;
  SemaphoreStub() = default;
  static SemaphoreStub deserialize(const std::vector<char>& data, const detail::Deadline& deadline);

  Connection connection_;
  RegisteredMemory memory_;
  Device device_;
};

/// A local and a remote counter, bound to a connection. A cheap value. What signals and waits on it: the classes in
/// memory_semaphore.hpp and host_semaphore.hpp.
class Semaphore {
 public:
  /// Stands for nothing.
  Semaphore() = default;
  /// `local` was made here from a connection, `remote` came from the peer of that connection: as bytes or, within a
  /// process, as it is; then its counter becomes accessible to the current device.
  Semaphore(const SemaphoreStub& local, const SemaphoreStub& remote);
  /// The same with who reports and ends failed waits, and the ranks that the report names.
  Semaphore(const SemaphoreStub& local, const SemaphoreStub& remote, std::shared_ptr<WaitMonitor> monitor, int rank,
            int peer);

  const Connection& connection() const noexcept { return connection_; }
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
