// The base class of all transports' connections. Connection has validated the arguments.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "host/bootstrap/failure_state.hpp"
#include "host/memory/memory_transport.hpp"
#include "host/transport/memory_registration.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/transport/endpoint.hpp"
#include "mscclpp/host/transport/registered_memory.hpp"

namespace mscclpp {
class Context;
}

namespace mscclpp::detail {

/// Operations are numbered 1, 2, ... in the order in which they are issued. One thread at a time calls the functions,
/// except the accessors at the end.
///
/// For a non-blocking flush, remember issued(); the flush is complete when completed() has reached that.
class ConnectionBase {
 public:
  ConnectionBase(std::shared_ptr<Context> context, const Endpoint& local, const Endpoint& remote)
      : context_(std::move(context)), local_(local), remote_(remote) {}
  virtual ~ConnectionBase() = default;
  ConnectionBase(const ConnectionBase&) = delete;
  ConnectionBase& operator=(const ConnectionBase&) = delete;

  /// `size` is not zero. An operation that throws has not been issued.
  void write(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src, std::uint64_t srcOffset,
             std::uint64_t size) {
    startWrite(dst, dstOffset, src, srcOffset, size);
    ++issued_;
  }
  /// The word at dst holds `oldValue` when all earlier updates of it by this connection have arrived.
  void updateAndSync(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t oldValue,
                     std::uint64_t newValue) {
    startUpdate(dst, dstOffset, oldValue, newValue);
    ++issued_;
  }

  /// Whether updateAndSync stores newValue whatever the word holds, so that it can write any 8 bytes.
  virtual bool supportsWriteValue() const { return false; }

  /// Between the two, operations may be buffered and posted together. completed() posts them too. Repeated calls have
  /// no effect.
  virtual void beginBatch() {}
  virtual void endBatch() {}

  /// The number of the last operation.
  std::uint64_t issued() const noexcept { return issued_; }
  /// All operations up to this number have taken effect at the peer, and their sources may be reused. Never blocks, but
  /// makes progress if the transport needs that: a caller that waits polls it. Never decreases. Throws the failure if
  /// an operation beyond the result can no longer complete, and throws it again at each call.
  virtual std::uint64_t completed() = 0;
  /// Has the device store `value` to *word, 8 bytes of its own memory, when all operations issued so far have
  /// completed. Returns false and does nothing if the transport does not support it.
  virtual bool storeWhenComplete(std::uint64_t* /*word*/, std::uint64_t /*value*/) { return false; }
  virtual bool supportsStoreWhenComplete() const { return false; }
  /// From now on an abort of `failures` ends every blocked call with Error(Aborted), and the failure or departure of
  /// `peer` ends it with Error(RemoteError), which names that rank. Called once, before the connection is used.
  void endWith(std::shared_ptr<const FailureState> failures, int peer) {
    failures_ = std::move(failures);
    peer_ = peer;
  }
  /// The failure of the peer, first or later of the job; empty while it runs, or if this rank has aborted.
  std::optional<RankFailure> peerFailure() const;
  /// Waits until completed() reaches the current issued().
  void flush(std::chrono::microseconds timeout);

  /// Throw Error(InvalidUsage) unless the range lies in memory that the connection can access on that side.
  void checkDestination(const RegisteredMemory& memory, std::uint64_t offset, std::uint64_t size) const {
    checkRange("destination", memory, offset, size, remote_.transport());
  }
  void checkSource(const RegisteredMemory& memory, std::uint64_t offset, std::uint64_t size) const {
    checkRange("source", memory, offset, size, local_.transport());
  }

  const std::shared_ptr<Context>& context() const noexcept { return context_; }
  const Endpoint& local() const noexcept { return local_; }
  const Endpoint& remote() const noexcept { return remote_; }

 protected:
  // Implement write and updateAndSync. The operation being started has the number issued() + 1.
  virtual void startWrite(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                          std::uint64_t srcOffset, std::uint64_t size) = 0;
  virtual void startUpdate(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t oldValue,
                           std::uint64_t newValue) = 0;
  /// Called by flush between two polls, `waited` after it began: returns when progress is likely, after at most `left`
  /// or 100 ms. By default it yields at first and sleeps briefly later.
  virtual void waitForProgress(std::chrono::microseconds waited, std::chrono::microseconds left);
  /// The transport, and the peer if it has a name in the transport; for messages.
  virtual std::string description() const;

  /// Whether no progress is expected: the communicator was aborted, or the peer failed or left the job.
  bool hasEnded() const noexcept {
    return failures_ && (failures_->isAborted() || failures_->hasFailed(peer_) || failures_->hasLeft(peer_));
  }
  struct EndReason {
    std::string text;
    ErrorCode code;
  };
  /// Why the connection hasEnded().
  EndReason endReason() const;
  /// Called in waits at least every 100 ms. Throws Error with endReason().
  void throwIfEnded() const;
  /// "rank 2 at ADDRESS" if the peer's rank is known, otherwise "the peer at ADDRESS".
  std::string peerText(const std::string& address) const;

  /// The handle of this connection's transport in a registration; the peer's transport may differ (IB0 to IB7).
  const MemoryHandle& handleOf(const RegisteredMemory& memory) const { return handleOf(memory, local_.transport()); }
  static const MemoryHandle& handleOf(const RegisteredMemory& memory, Transport transport) {
    for (const MemoryHandle& handle : registrationOf(memory).handles) {
      if (handle.transport == transport) return handle;
    }
    throwWithoutHandle(transport);
  }
  /// In the process that owns the memory.
  static std::uint64_t addressOf(const RegisteredMemory& memory) { return registrationOf(memory).address; }

 private:
  static void checkRange(const char* which, const RegisteredMemory& memory, std::uint64_t offset, std::uint64_t size,
                         Transport transport) {
    const auto& registration = registrationOf(memory);
    const bool inside = offset <= registration.size && size <= registration.size - offset;
    if (!inside || !registration.transports.has(transport)) throwBadRange(which, memory, offset, size, transport);
  }
  // Not inlined, to keep the code path of every operation short.
  [[noreturn]] static void throwBadRange(const char* which, const RegisteredMemory& memory, std::uint64_t offset,
                                         std::uint64_t size, Transport transport);
  [[noreturn]] static void throwWithoutHandle(Transport transport);

  std::shared_ptr<Context> context_;
  Endpoint local_;
  Endpoint remote_;
  std::uint64_t issued_ = 0;
  std::shared_ptr<const FailureState> failures_;  // null if the connection was not created by a communicator
  int peer_ = -1;
};

}  // namespace mscclpp::detail
