#include "host/transport/tcp/tcp_connection.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "host/cuda/gpu_backend.hpp"
#include "host/net/socket.hpp"
#include "host/transport/tcp/memory_info.hpp"

namespace mscclpp::detail::tcp {

using namespace std::chrono_literals;

namespace {

// Operations issued and not flushed have usually arrived when a connection ends, or arrive within this time.
constexpr std::chrono::milliseconds drainTimeout = 5s;
// An idle core takes longer to wake up than a reply takes to arrive.
constexpr std::chrono::microseconds busyPollTime{50};
// In a batch: the maximum payload that is copied, to be sent together with others, and the size of that buffer.
constexpr std::size_t maxCopiedPayload = 4096;
constexpr std::size_t maxSendBuffer = 64 << 10;

const char* statusText(Status status) {
  switch (status) {
    case Status::UnknownMemory:
      return "the memory is no longer registered there; keep the RegisteredMemory alive";
    case Status::OutOfRange:
      return "it is outside of the registered memory, or its word is not aligned to 8 bytes";
    case Status::Malformed:
      return "invalid message";
    case Status::CopyFailed:
      return "it could not copy to its GPU";
    case Status::Ok:
      break;
  }
  return "for a reason that this version does not know; use one version on all ranks";
}

}  // namespace

TcpConnection::TcpConnection(std::shared_ptr<Context> context, const Endpoint& local, const Endpoint& remote,
                             UniqueFd socket, const Id128& targetNetwork, std::chrono::milliseconds sendTimeout)
    : NetworkConnection(std::move(context), local, remote),
      socket_(std::move(socket)),
      targetNetwork_(targetNetwork),
      peerAddress_(remoteAddressOf(socket_).toString()),
      sendTimeout_(sendTimeout) {
  // Created now: allocating its memory later would block while a kernel waits for this connection.
  if (local.device().type == DeviceType::GPU) copier_ = makeStagingCopier(local.device().id);
}

TcpConnection::~TcpConnection() {
  if (isForkedCopy()) {
    // A query would be sent to the parent's peer, and its reply is for the parent. CUDA does not work in a forked
    // child.
    static_cast<void>(copier_.release());
    return;
  }
  try {
    const Deadline deadline = Deadline::after(drainTimeout);
    // Even where no reply is expected, completed() sends what is buffered.
    while (completed() < issued() && !hasEnded() && !deadline.expired()) waitFor(POLLIN, 10ms);
  } catch (const BaseError&) {  // a caller that needs the result calls flush
  }
  ::shutdown(socket_.get(), SHUT_RDWR);  // a forked child may hold a copy
}

void TcpConnection::startWrite(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                               std::uint64_t srcOffset, std::uint64_t size) {
  throwIfFailed();
  const auto* source = static_cast<const char*>(src.data());
  if (source == nullptr) {
    throw Error("Connection::write: the source is a peer's memory; it must be this rank's", ErrorCode::InvalidUsage);
  }
  source += srcOffset;
  Message message = messageFor(Operation::Write, handleOf(dst), dstOffset);
  message.size = size;
  const int gpu = MemoryInfo::of(handleOf(src)).gpu;
  if (gpu < 0) return send(bytesOf(message), {source, size});
  if (!copier_ || copier_->gpu() != gpu) copier_ = makeStagingCopier(gpu);
  std::string_view front = bytesOf(message);
  try {
    copier_->copyFromGpu(source, size, [&](const char* piece, std::size_t bytes) {
      send(front, {piece, bytes});
      front = {};
    });
  } catch (...) {
    // The peer would interpret the next bytes as the rest of this operation.
    if (!failure_) failure_ = std::current_exception();
    throw;
  }
}

void TcpConnection::startUpdate(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t,
                                std::uint64_t newValue) {
  throwIfFailed();
  Message message = messageFor(Operation::Update, handleOf(dst), dstOffset);
  message.value = newValue;
  send(bytesOf(message), {});
}

Message TcpConnection::messageFor(Operation operation, const MemoryHandle& memory, std::uint64_t offset) const {
  // The peer would close the connection.
  if (MemoryInfo::of(memory).network != targetNetwork_) {
    throw Error(
        "Connection: the destination does not belong to this connection's peer; pass a RegisteredMemory that the peer "
        "made with the context of its endpoint",
        ErrorCode::InvalidUsage);
  }
  return {operation, 0, issued() + 1, memory.allocation, offset, 0, 0};
}

std::uint64_t TcpConnection::completed() {
  if (completed_ == issued()) return completed_;
  if (!failure_) {
    try {
      // One query at a time.
      if (ackRequested_ <= completed_) {
        bufferBytes(bytesOf(Message{Operation::Query, 0, issued(), {}, 0, 0, 0}));
        ackRequested_ = issued();
      }
      flushSendBuffer();
      readReplies();
    } catch (const BaseError&) {  // stored in failure_, and thrown below
    }
  }
  if (completed_ < issued()) throwIfFailed();
  return completed_;
}

void TcpConnection::postBatch() {
  if (sendBuffer_.empty()) return;
  throwIfFailed();
  send({}, {});
}

void TcpConnection::bufferBytes(std::string_view bytes) {
  sendBuffer_.insert(sendBuffer_.end(), bytes.begin(), bytes.end());
}

// Sends as much as the socket accepts without blocking.
void TcpConnection::flushSendBuffer() {
  while (!sendBuffer_.empty()) {
    iovec piece{sendBuffer_.data(), sendBuffer_.size()};
    const std::size_t sent = trySend(&piece, 1);
    if (sent == 0) return;
    sendBuffer_.erase(sendBuffer_.begin(), sendBuffer_.begin() + static_cast<std::ptrdiff_t>(sent));
  }
}

// Sends everything that is buffered, then the message and its payload.
void TcpConnection::send(std::string_view message, std::string_view payload) {
  if (isBatching() && payload.size() <= maxCopiedPayload && sendBuffer_.size() < maxSendBuffer) {
    bufferBytes(message);
    bufferBytes(payload);
    return;
  }
  std::array<iovec, 3> pieces;
  std::size_t count = 0;
  for (const std::string_view part : {std::string_view(sendBuffer_.data(), sendBuffer_.size()), message, payload}) {
    if (!part.empty()) pieces[count++] = {const_cast<char*>(part.data()), part.size()};
  }
  Deadline deadline = Deadline::after(sendTimeout_);
  for (iovec* next = pieces.data(); count > 0;) {
    std::size_t sent = trySend(next, count);
    if (sent == 0) {
      readReplies();
      if (deadline.expired()) fail("it has accepted no data for " + deadline.elapsedText(), ErrorCode::Timeout);
      if (hasEnded()) {
        const auto [reason, code] = endReason();
        fail(reason, code);
      }
      waitFor(POLLIN | POLLOUT, std::chrono::milliseconds(deadline.pollTimeout(100ms)));
      continue;
    }
    for (; count > 0 && sent >= next->iov_len; --count) sent -= (next++)->iov_len;
    if (count == 0) break;
    *next = {static_cast<char*>(next->iov_base) + sent, next->iov_len - sent};
    deadline = Deadline::after(sendTimeout_);
  }
  sendBuffer_.clear();
}

// Zero if the send buffer of the socket is full.
std::size_t TcpConnection::trySend(iovec* pieces, std::size_t count) {
  msghdr header{};
  header.msg_iov = pieces;
  header.msg_iovlen = count;
  ssize_t sent;
  do {
    sent = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  const int error = errno;
  if (error == EAGAIN || error == EWOULDBLOCK) return 0;
  readReplies();  // the peer may have sent the reason
  fail(std::strerror(error), ErrorCode::RemoteError);
}

void TcpConnection::readReplies() {
  while (true) {
    char* rest = reinterpret_cast<char*>(&reply_) + replyBytesReceived_;
    const ssize_t count = ::recv(socket_.get(), rest, sizeof(reply_) - replyBytesReceived_, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count < 0) fail(std::strerror(errno), ErrorCode::RemoteError);
    if (count == 0) {
      fail("it closed the connection: its process has ended, or the connection there was destroyed",
           ErrorCode::RemoteError);
    }
    replyBytesReceived_ += static_cast<std::size_t>(count);
    if (replyBytesReceived_ < sizeof(reply_)) continue;
    replyBytesReceived_ = 0;
    // The operation that is being sent may be the one that is rejected.
    if (reply_.completed < completed_ || reply_.completed > issued() + 1) {
      fail("invalid reply", ErrorCode::RemoteError);
    }
    completed_ = std::min(reply_.completed, issued());
    if (reply_.status != Status::Ok) {
      fail("it refused operation " + std::to_string(reply_.completed + 1) + ": " + statusText(reply_.status),
           ErrorCode::RemoteError);
    }
  }
}

void TcpConnection::waitForProgress(std::chrono::microseconds waited, std::chrono::microseconds left) {
  if (waited < busyPollTime) return std::this_thread::yield();
  // poll returns when the reply arrives; the limit is for events that no socket reports.
  waitFor(static_cast<short>(sendBuffer_.empty() ? POLLIN : POLLIN | POLLOUT),
          std::min<std::chrono::microseconds>(left, 100ms));
}

bool TcpConnection::waitFor(short events, std::chrono::microseconds atMost) const {
  pollfd entry{socket_.get(), events, 0};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(atMost);
  const timespec limit{seconds.count(), std::chrono::nanoseconds(atMost - seconds).count()};
  return ::ppoll(&entry, 1, &limit, nullptr) > 0;
}

std::string TcpConnection::description() const {
  return "TCP to " + peerText(peerAddress_);
}

void TcpConnection::fail(const std::string& what, ErrorCode code) {
  if (!failure_) {
    failure_ =
        std::make_exception_ptr(Error("the TCP connection to " + peerText(peerAddress_) + " failed (operations " +
                                          std::to_string(completed_ + 1) + " and later): " + what,
                                      code));
  }
  std::rethrow_exception(failure_);
}

void TcpConnection::throwIfFailed() const {
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace mscclpp::detail::tcp
