// One-sided copies from this rank to one peer.
#pragma once

#include <cstdint>
#include <memory>

#include "mscclpp/host/device.hpp"
#include "mscclpp/host/registered_memory.hpp"
#include "mscclpp/host/transport.hpp"

namespace mscclpp {

class Context;
namespace detail {
class ConnectionBase;
}

/// Made by Context::connect. A cheap value: copies stand for the same connection. Operations are issued by the host,
/// by one thread at a time, and take effect in order. `dst` is a peer's memory, `src` this rank's; both must have been
/// registered for transport(). Offsets and sizes are in bytes. Every function throws Error(InvalidUsage) for a range
/// that leaves its memory, or memory that the transport cannot reach.
class Connection {
 public:
  /// Stands for nothing; using it throws Error(InvalidUsage).
  Connection() = default;
  explicit Connection(std::shared_ptr<detail::ConnectionBase> base) : base_(std::move(base)) {}

  /// Starts to copy `size` bytes from src + srcOffset to dst + dstOffset. Leave the source alone until a flush.
  void write(RegisteredMemory dst, std::uint64_t dstOffset, RegisteredMemory src, std::uint64_t srcOffset,
             std::uint64_t size);
  /// Sets *src (host memory) to `newValue`, and the 8-byte word at dst + dstOffset too, after all earlier writes have
  /// arrived: a peer that acquires the new value sees them. dstOffset must be 8-byte aligned.
  void updateAndSync(RegisteredMemory dst, std::uint64_t dstOffset, std::uint64_t* src, std::uint64_t newValue);
  /// Returns when all earlier operations have completed. Throws Error(Timeout) after `timeoutUsec` microseconds;
  /// negative means 30 s.
  void flush(std::int64_t timeoutUsec = -1);

  Transport transport() const;
  Transport remoteTransport() const;
  std::shared_ptr<Context> context() const;
  const Device& localDevice() const;
  /// Writes that may be outstanding; -1 if the transport sets no limit.
  int getMaxWriteQueueSize() const;

  /// Whether both stand for the same connection.
  friend bool operator==(const Connection&, const Connection&) = default;

 private:
  friend class Communicator;
  detail::ConnectionBase& base() const;

  std::shared_ptr<detail::ConnectionBase> base_;
};

}  // namespace mscclpp
