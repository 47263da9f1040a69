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
  void write(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src, std::uint64_t srcOffset,
             std::uint64_t size);
  /// Sets *src (host memory) to `newValue`, and the 8-byte word at dst + dstOffset too, after all earlier writes have
  /// arrived: a peer that acquires the new value sees them. The destination must be aligned to 8 bytes. Over a network
  /// *src must hold what the destination does, or will when what is under way has arrived: a counter with one writer.
  void updateAndSync(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t* src, std::uint64_t newValue);
  /// Returns when all earlier operations have completed: taken effect at the peer, and done with their source. Throws
  /// Error(Timeout) after `timeoutUsec` microseconds; negative means 30 s. Throws what went wrong, such as
  /// Error(RemoteError) for a peer that is gone, if they never will.
  void flush(std::int64_t timeoutUsec = -1);

  /// A flush that does not block. Operations are numbered from 1 as they are issued: issued() is the number of the last
  /// one, and all up to completed() have completed. To wait for what is issued now, remember issued() and call
  /// completed() until it has reached that. completed() never waits, moves things on where the transport needs that, and
  /// throws as flush does.
  std::uint64_t issued() const;
  std::uint64_t completed();
  /// A flush that nobody needs to ask about: `value` is stored to *word, 8 bytes of memory of the local GPU, when all that
  /// is issued now has completed. Returns false, having done nothing, where the transport cannot: all but CudaIpc.
  bool storeWhenComplete(std::uint64_t* word, std::uint64_t value);

  /// Writes 8 bytes given by value, in order with the other operations. The destination must be aligned to 8 bytes. Throws
  /// Error(InvalidUsage) unless writesValues(): where each GPU or CPU rank maps the other's memory.
  void writeValue(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t value);
  bool writesValues() const;

  /// Between the two, operations may be held back, to be started together: a network device is then told once of many.
  /// flush and completed() start them too. Elsewhere they have no effect. endBatch throws what starting them throws.
  void beginBatch();
  void endBatch();

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
