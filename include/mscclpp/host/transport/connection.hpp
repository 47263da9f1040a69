// One-sided copies from this rank to one peer.
#pragma once

#include <cstdint>
#include <memory>

#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/base/transport.hpp"
#include "mscclpp/host/transport/registered_memory.hpp"

namespace mscclpp {

class Context;
namespace detail {
class ConnectionBase;
}

/// Created by Context::connect. Cheap to copy: copies refer to the same connection. Operations are issued by the host,
/// by one thread at a time. Two writes may take effect in any order (over several queue pairs they do); updateAndSync
/// takes effect after all earlier operations, and operations count as completed in the order in which they were issued.
/// `dst` is a peer's memory, `src` this rank's; both must have been registered for transport(). Offsets and sizes are
/// in bytes. Every function throws Error(InvalidUsage) for a range that exceeds its memory, or memory that the
/// transport cannot access. Only a connection to oneself takes this rank's memory as `dst`; on others it is not
/// detected by transports that map memory (CudaIpc, SharedMemory), which write there, and ends a connection over a
/// network with an error.
class Connection {
 public:
  /// Empty; using it throws Error(InvalidUsage).
  Connection() = default;
  /// Internal: host/transport/connection_base.hpp has the type.
  explicit Connection(std::shared_ptr<detail::ConnectionBase> base) : base_(std::move(base)) {}

  /// Starts to copy `size` bytes from src + srcOffset to dst + dstOffset. The source must not change until a flush.
  void write(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src, std::uint64_t srcOffset,
             std::uint64_t size);
  /// Sets *src (host memory) to `newValue`, and the 8-byte word at dst + dstOffset too, after all earlier writes have
  /// arrived: a peer that acquires the new value sees them. The destination must be aligned to 8 bytes. Over a network
  /// *src must hold the value that the destination has once all earlier operations have arrived: a counter with one
  /// writer.
  void updateAndSync(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t* src, std::uint64_t newValue);
  /// Returns when all earlier operations have completed: they have taken effect at the peer, and their sources may be
  /// reused. Throws Error(Timeout) after `timeoutUsec` microseconds; negative means 30 s. Throws the failure, such as
  /// Error(RemoteError) for a peer that has failed, if they cannot complete.
  void flush(std::int64_t timeoutUsec = -1);

  /// A non-blocking flush. Operations are numbered from 1 as they are issued: issued() is the number of the last one,
  /// and all up to completed() have completed. To wait for the operations issued so far, remember issued() and call
  /// completed() until it has reached that. completed() never blocks, makes progress if the transport needs that, and
  /// throws as flush does.
  std::uint64_t issued() const;
  std::uint64_t completed();
  /// Stores `value` to *word, 8 bytes of memory of the local GPU, when all operations issued so far have completed: a
  /// flush that a kernel can poll. Returns false and does nothing on transports other than CudaIpc.
  bool storeWhenComplete(std::uint64_t* word, std::uint64_t value);

  /// Writes an 8-byte value, in order with the other operations, as the transports that support it perform them all.
  /// The destination must be aligned to 8 bytes. Throws Error(InvalidUsage) unless supportsWriteValue(): true over TCP,
  /// and if each GPU or CPU rank maps the other's memory.
  void writeValue(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t value);
  bool supportsWriteValue() const;

  /// Between the two, operations may be buffered and posted together, with one call to the network device. flush and
  /// completed() post them too. No effect on transports without batches. endBatch throws if posting them fails.
  void beginBatch();
  void endBatch();

  Transport transport() const;
  Transport remoteTransport() const;
  std::shared_ptr<Context> context() const;
  const Device& localDevice() const;
  /// Maximum number of outstanding writes; -1 if the transport sets no limit.
  int getMaxWriteQueueSize() const;

  /// Whether both refer to the same connection.
  friend bool operator==(const Connection&, const Connection&) = default;

  /// Internal; null if empty.
  const std::shared_ptr<detail::ConnectionBase>& base() const noexcept { return base_; }

 private:
  detail::ConnectionBase& implementation() const;

  std::shared_ptr<detail::ConnectionBase> base_;
};

}  // namespace mscclpp
