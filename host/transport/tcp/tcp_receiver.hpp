// The receiving end of a TCP connection: applies a peer's operations to registered memory, and sends replies.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "host/base/deadline.hpp"
#include "host/base/unique_fd.hpp"
#include "host/cuda/staging_copier.hpp"
#include "host/transport/tcp/registry.hpp"
#include "host/transport/tcp/wire.hpp"

namespace mscclpp::detail::tcp {

/// Used only by the network's thread. Never waits for the peer. An operation that names memory which is not registered,
/// or exceeds it, is rejected before any of its payload is written, and ends the connection: the peer is sent the
/// reason.
class TcpReceiver {
 public:
  /// `copies` may be null: it is created when the first operation on GPU memory arrives.
  TcpReceiver(UniqueFd socket, const Registry& registry, std::unique_ptr<StagingCopier> copies);
  ~TcpReceiver();
  TcpReceiver(const TcpReceiver&) = delete;
  TcpReceiver& operator=(const TcpReceiver&) = delete;

  /// Applies what has arrived, some megabytes at most, and sends replies. Returns false when the connection has ended.
  bool serve() noexcept;

  /// The epoll events to wait for: EPOLLIN, EPOLLOUT.
  std::uint32_t interest() const noexcept;
  /// Milliseconds after which to call serve() again even if nothing has arrived; -1: not needed.
  int pollTimeout() const noexcept;
  const UniqueFd& socket() const noexcept { return socket_; }

 private:
  enum class Progress { More, Drained, Closed };

  Progress receive();
  Progress discard();
  void processReceived();
  void startOperation(const Message& message);
  void copyPayload(const char* bytes, std::size_t count);
  void advancePayload(std::size_t count);
  void update(const Message& message);
  void selectGpu(int gpu);
  void holdGuard(Registration::Guard guard);
  void acknowledgeCompleted();
  void reply(std::uint64_t completed);
  bool sendReply();
  void reject(Status status);
  void fail(Status status) noexcept;

  UniqueFd socket_;
  const Registry& registry_;
  std::unique_ptr<StagingCopier> copier_;
  // The memory that copies since the last event access, and its guards.
  std::shared_ptr<Registration> guarded_;
  std::vector<Registration::Guard> guards_;
  /// The operations that the copies in flight belong to.
  struct PendingAck {
    std::vector<Registration::Guard> guards;
    bool ackRequested;
    std::uint64_t applied;
  };
  std::optional<PendingAck> pendingAck_;

  // The operation whose bytes are arriving; payloadLeft_ is zero between operations.
  Id128 name_{};
  std::shared_ptr<Registration> memory_;
  char* target_ = nullptr;
  std::size_t payloadLeft_ = 0;
  std::uint64_t applied_ = 0;

  // Bytes that have arrived and are not applied: messages, and the payload of small ones.
  std::array<char, 16384> receiveBuffer_;
  std::size_t receiveBegin_ = 0;
  std::size_t receiveEnd_ = 0;

  bool ackRequested_ = false;
  std::uint64_t acknowledged_ = 0;  // last operation that was acknowledged to the peer
  Reply reply_{};
  std::size_t replyBytesLeft_ = 0;  // bytes of it that have not been sent
  std::optional<Deadline> failed_;
};

}  // namespace mscclpp::detail::tcp
