// What a transport implements to be a connection. Connection has checked the arguments.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "memory_transport.hpp"
#include "mscclpp/host/endpoint.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/liveness.hpp"
#include "mscclpp/host/registered_memory.hpp"
#include "registered_memory_state.hpp"

namespace mscclpp {
class Context;
}

namespace mscclpp::detail {

/// Operations are numbered 1, 2, ... in the order in which they are issued. One thread at a time calls the functions,
/// but for the accessors at the end.
///
/// A flush that does not block: remember issued(), go on, and the flush is over when completed() has reached it.
class ConnectionBase {
 public:
  ConnectionBase(std::shared_ptr<Context> context, const Endpoint& local, const Endpoint& remote)
      : context_(std::move(context)), local_(local), remote_(remote) {}
  virtual ~ConnectionBase() = default;
  ConnectionBase(const ConnectionBase&) = delete;
  ConnectionBase& operator=(const ConnectionBase&) = delete;

  /// `size` is not zero. An operation that throws was not issued.
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

  /// Whether updateAndSync stores newValue whatever the word holds, and so serves to write any 8 bytes.
  virtual bool writesValues() const { return false; }

  /// Between the two, operations may be held back, to be started together: a network device is then told once of many.
  /// completed() starts them too. Each side once more has no effect.
  virtual void beginBatch() {}
  virtual void endBatch() {}

  /// The number of the last operation.
  std::uint64_t issued() const noexcept { return issued_; }
  /// All operations up to this number have taken effect at the peer, and their sources are free. Never waits; moves
  /// things on where the transport needs that, so whoever waits calls it again and again. Never decreases. Throws what
  /// went wrong if an operation beyond the result can no longer complete, and does so again at each call.
  virtual std::uint64_t completed() = 0;
  /// Has the device store `value` to *word, 8 bytes of its own memory, when all that is issued now has completed. Returns
  /// false, having done nothing, where the transport has no such thing.
  virtual bool storeWhenComplete(std::uint64_t* /*word*/, std::uint64_t /*value*/) { return false; }
  /// Ends a call that waits now, and all that would have to wait later, with Error(Aborted). Any thread.
  void abort() noexcept { aborted_.store(true, std::memory_order_relaxed); }
  /// The same because the peer's rank was lost: with Error(RemoteError), which names it and says how that was noticed.
  void abort(const RankFailure& failure) noexcept;
  /// Waits until completed() reaches what is issued() now.
  void flush(std::chrono::microseconds timeout);

  /// Throw Error(InvalidUsage) unless the range lies in memory that the connection reaches on that side.
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
  // What write and updateAndSync do. The operation being started has the number issued() + 1.
  virtual void startWrite(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                          std::uint64_t srcOffset, std::uint64_t size) = 0;
  virtual void startUpdate(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t oldValue,
                           std::uint64_t newValue) = 0;
  /// Called by flush between two looks, `waited` after it began: returns when another look may pay, after `left` or
  /// 100 ms at the latest. By default it yields at first and takes short naps later.
  virtual void awaitProgress(std::chrono::microseconds waited, std::chrono::microseconds left);
  /// The transport, and the peer if the transport knows a name of it; for messages.
  virtual std::string path() const;

  bool isAborted() const noexcept { return aborted_.load(std::memory_order_relaxed); }
  struct Ending {
    std::string reason;
    ErrorCode code;
  };
  /// Why the connection isAborted().
  Ending ending() const;
  /// Between two looks of a wait, which are no more than 100 ms apart. Throws Error with the ending.
  void refuseIfAborted() const;

  /// The handle of this connection's transport in a registration; the peer's may be another (IB0 to IB7).
  const MemoryHandle& handleOf(const RegisteredMemory& memory) const { return handleOf(memory, local_.transport()); }
  static const MemoryHandle& handleOf(const RegisteredMemory& memory, Transport transport) {
    for (const MemoryHandle& handle : memory.state().handles) {
      if (handle.transport == transport) return handle;
    }
    throwWithoutHandle(transport);
  }
  /// In the process that owns the memory.
  static std::uint64_t addressOf(const RegisteredMemory& memory) { return memory.state().originalAddress; }

 private:
  static void checkRange(const char* which, const RegisteredMemory& memory, std::uint64_t offset, std::uint64_t size,
                         Transport transport) {
    const auto& state = memory.state();
    const bool inside = offset <= state.size && size <= state.size - offset;
    if (!inside || !state.transports.has(transport)) throwBadRange(which, memory, offset, size, transport);
  }
  // Apart from what every operation runs through, which stays short.
  [[noreturn]] static void throwBadRange(const char* which, const RegisteredMemory& memory, std::uint64_t offset,
                                         std::uint64_t size, Transport transport);
  [[noreturn]] static void throwWithoutHandle(Transport transport);

  std::shared_ptr<Context> context_;
  Endpoint local_;
  Endpoint remote_;
  std::uint64_t issued_ = 0;
  std::atomic<bool> aborted_ = false;
  mutable std::mutex lostMutex_;
  std::optional<RankFailure> lost_;  // known before aborted_ says so
};

std::shared_ptr<ConnectionBase> connectSharedMemory(std::shared_ptr<Context> context, const Endpoint& local,
                                                    const Endpoint& remote);

}  // namespace mscclpp::detail
