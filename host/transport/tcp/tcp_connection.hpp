// The sending end of a TCP connection: a NetworkConnection whose operations are messages.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/deadline.hpp"
#include "host/base/unique_fd.hpp"
#include "host/cuda/staging_copier.hpp"
#include "host/transport/network_connection.hpp"
#include "host/transport/tcp/wire.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail::tcp {

/// Everything happens in the calling thread: it sends, and reads replies when progress is requested. An operation
/// returns when its bytes have been passed to the socket or, if small and in a batch, copied; from then on its source
/// may be reused. A failed connection stays failed, and every call throws the reason.
class TcpConnection : public NetworkConnection {
 public:
  /// `socket` is connected to a TcpReceiver of the peer's network `targetNetwork`. Sending fails when the peer has
  /// accepted no data for `sendTimeout`.
  TcpConnection(std::shared_ptr<Context> context, const Endpoint& local, const Endpoint& remote, UniqueFd socket,
                const Id128& targetNetwork, std::chrono::milliseconds sendTimeout);
  /// Waits up to 5 s for outstanding operations. In a forked child it only closes the child's descriptor.
  ~TcpConnection() override;

  std::uint64_t completed() override;
  bool supportsWriteValue() const override { return true; }

 protected:
  void postBatch() override;
  void startWrite(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                  std::uint64_t srcOffset, std::uint64_t size) override;
  void startUpdate(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t oldValue,
                   std::uint64_t newValue) override;
  void waitForProgress(std::chrono::microseconds waited, std::chrono::microseconds left) override;
  std::string description() const override;

 private:
  Message messageFor(Operation operation, const MemoryHandle& memory, std::uint64_t offset) const;
  void bufferBytes(std::string_view bytes);
  void flushSendBuffer();
  void send(std::string_view message, std::string_view payload);
  std::size_t trySend(iovec* pieces, std::size_t count);
  void readReplies();
  bool waitFor(short events, std::chrono::microseconds atMost) const;
  [[noreturn]] void fail(const std::string& what, ErrorCode code);
  void throwIfFailed() const;

  UniqueFd socket_;
  Id128 targetNetwork_;
  std::string peerAddress_;
  std::chrono::milliseconds sendTimeout_;
  std::unique_ptr<StagingCopier> copier_;  // for sources in GPU memory

  std::uint64_t completed_ = 0;
  std::uint64_t ackRequested_ = 0;  // the number of the last query
  std::vector<char> sendBuffer_;    // sent before anything else
  Reply reply_{};
  std::size_t replyBytesReceived_ = 0;
  std::exception_ptr failure_;
};

}  // namespace mscclpp::detail::tcp
