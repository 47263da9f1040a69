#include "outbound.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "../../gpu_backend.hpp"
#include "../../socket.hpp"
#include "memory_name.hpp"

namespace mscclpp::detail::tcp {

using namespace std::chrono_literals;

namespace {

// What was issued and never flushed mostly has arrived when a connection ends, or does so in this time.
constexpr std::chrono::milliseconds farewell = 5s;
// A core that goes idle takes longer to wake than an answer to come.
constexpr std::chrono::microseconds closeWatch{50};
// In a batch: what is copied to travel with its neighbours, and how much of that waits.
constexpr std::size_t smallPayload = 4096;
constexpr std::size_t heldAtMost = 64 << 10;

const char* textOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::UnknownMemory:
      return "the memory is no longer registered there; keep the RegisteredMemory alive";
    case Outcome::OutOfRange:
      return "it leaves the registered memory, or its word is not aligned to 8 bytes";
    case Outcome::Malformed:
      return "it does not understand the message";
    case Outcome::CopyFailed:
      return "it could not copy to its GPU";
    case Outcome::Fine:
      break;
  }
  return "for a reason that this version does not know";
}

}  // namespace

Outbound::Outbound(std::shared_ptr<Context> context, const Endpoint& local, const Endpoint& remote, UniqueFd socket,
                   const Id128& target, std::chrono::milliseconds patience)
    : ConnectionBase(std::move(context), local, remote),
      socket_(std::move(socket)),
      target_(target),
      peer_(remoteAddressOf(socket_).toString()),
      patience_(patience) {
  // Made now: memory for it could not be had later while a kernel waits for this very connection.
  if (local.device().type == DeviceType::GPU) copies_ = makeStagedCopies(local.device().id);
}

Outbound::~Outbound() {
  try {
    const Deadline deadline = Deadline::after(farewell);
    while (!isAborted() && completed() < issued() && !deadline.expired()) waitFor(POLLIN, 10ms);
  } catch (const BaseError&) {  // whoever wanted to know has asked
  }
}

void Outbound::startWrite(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                          std::uint64_t srcOffset, std::uint64_t size) {
  refuseIfFailed();
  const auto* source = static_cast<const char*>(src.data());
  if (source == nullptr) {
    throw Error("Connection::write: the source is a peer's memory; it must be this rank's", ErrorCode::InvalidUsage);
  }
  source += srcOffset;
  Message message = messageFor(Operation::Write, handleOf(dst), dstOffset);
  message.size = size;
  const int gpu = MemoryName::of(handleOf(src)).gpu;
  if (gpu < 0) return send(bytesOf(message), {source, size});
  if (!copies_ || copies_->gpu() != gpu) copies_ = makeStagedCopies(gpu);
  std::string_view front = bytesOf(message);
  try {
    copies_->fromGpu(source, size, [&](const char* piece, std::size_t bytes) {
      send(front, {piece, bytes});
      front = {};
    });
  } catch (...) {
    // The peer takes whatever comes next for the rest of this operation.
    if (!failure_) failure_ = std::current_exception();
    throw;
  }
}

void Outbound::startUpdate(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t,
                           std::uint64_t newValue) {
  refuseIfFailed();
  Message message = messageFor(Operation::Update, handleOf(dst), dstOffset);
  message.value = newValue;
  send(bytesOf(message), {});
}

Message Outbound::messageFor(Operation operation, const MemoryHandle& memory, std::uint64_t offset) const {
  // The peer would end the connection.
  if (MemoryName::of(memory).network != target_) {
    throw Error(
        "Connection: the destination is no memory of this connection's peer; pass a RegisteredMemory that the peer "
        "made with the context of its endpoint",
        ErrorCode::InvalidUsage);
  }
  return {operation, 0, issued() + 1, memory.allocation, offset, 0, 0};
}

std::uint64_t Outbound::completed() {
  if (completed_ == issued()) return completed_;
  if (!failure_) {
    try {
      // One question at a time.
      if (queried_ <= completed_) {
        hold(bytesOf(Message{Operation::Query, 0, issued(), {}, 0, 0, 0}));
        queried_ = issued();
      }
      sendHeld();
      readAnswers();
    } catch (const BaseError&) {  // in failure_, and thrown below
    }
  }
  if (completed_ < issued()) refuseIfFailed();
  return completed_;
}

void Outbound::endBatch() {
  isBatch_ = false;
  if (held_.empty()) return;
  refuseIfFailed();
  send({}, {});
}

void Outbound::hold(std::string_view bytes) {
  held_.insert(held_.end(), bytes.begin(), bytes.end());
}

// As much as the system takes without waiting.
void Outbound::sendHeld() {
  while (!held_.empty()) {
    iovec piece{held_.data(), held_.size()};
    const std::size_t sent = sendSome(&piece, 1);
    if (sent == 0) return;
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(sent));
  }
}

// All of it, and before it what is held.
void Outbound::send(std::string_view message, std::string_view payload) {
  if (isBatch_ && payload.size() <= smallPayload && held_.size() < heldAtMost) {
    hold(message);
    hold(payload);
    return;
  }
  std::array<iovec, 3> pieces;
  std::size_t count = 0;
  for (const std::string_view part : {std::string_view(held_.data(), held_.size()), message, payload}) {
    if (!part.empty()) pieces[count++] = {const_cast<char*>(part.data()), part.size()};
  }
  Deadline deadline = Deadline::after(patience_);
  for (iovec* next = pieces.data(); count > 0;) {
    std::size_t sent = sendSome(next, count);
    if (sent == 0) {
      readAnswers();
      if (deadline.expired()) fail("it takes no data for " + deadline.passed(), ErrorCode::Timeout);
      if (isAborted()) {
        const auto [reason, code] = ending();
        fail(reason, code);
      }
      waitFor(POLLIN | POLLOUT, std::chrono::milliseconds(deadline.pollTimeout(100ms)));
      continue;
    }
    for (; count > 0 && sent >= next->iov_len; --count) sent -= (next++)->iov_len;
    if (count == 0) break;
    *next = {static_cast<char*>(next->iov_base) + sent, next->iov_len - sent};
    deadline = Deadline::after(patience_);
  }
  held_.clear();
}

// Zero if the system takes nothing now.
std::size_t Outbound::sendSome(iovec* pieces, std::size_t count) {
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
  readAnswers();  // the peer may have said why
  fail(std::strerror(error), ErrorCode::RemoteError);
}

void Outbound::readAnswers() {
  while (true) {
    char* rest = reinterpret_cast<char*>(&answer_) + answerReceived_;
    const ssize_t count = ::recv(socket_.get(), rest, sizeof(answer_) - answerReceived_, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count < 0) fail(std::strerror(errno), ErrorCode::RemoteError);
    if (count == 0) {
      fail("it closed the connection: its process has ended, or the connection there was destroyed",
           ErrorCode::RemoteError);
    }
    answerReceived_ += static_cast<std::size_t>(count);
    if (answerReceived_ < sizeof(answer_)) continue;
    answerReceived_ = 0;
    // An operation that is refused may be the one that is being sent.
    if (answer_.completed < completed_ || answer_.completed > issued() + 1) {
      fail("its answer makes no sense", ErrorCode::RemoteError);
    }
    completed_ = std::min(answer_.completed, issued());
    if (answer_.outcome != Outcome::Fine) {
      fail("it refuses operation " + std::to_string(answer_.completed + 1) + ": " + textOf(answer_.outcome),
           ErrorCode::RemoteError);
    }
  }
}

void Outbound::awaitProgress(std::chrono::microseconds waited, std::chrono::microseconds left) {
  if (waited < closeWatch) return std::this_thread::yield();
  // The system wakes this thread when the answer is there; the limit is for what it does not tell.
  waitFor(static_cast<short>(held_.empty() ? POLLIN : POLLIN | POLLOUT),
          std::min<std::chrono::microseconds>(left, 100ms));
}

bool Outbound::waitFor(short events, std::chrono::microseconds atMost) const {
  pollfd entry{socket_.get(), events, 0};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(atMost);
  const timespec limit{seconds.count(), std::chrono::nanoseconds(atMost - seconds).count()};
  return ::ppoll(&entry, 1, &limit, nullptr) > 0;
}

std::string Outbound::path() const {
  return "TCP to " + peer_;
}

void Outbound::fail(const std::string& what, ErrorCode code) {
  if (!failure_) {
    failure_ = std::make_exception_ptr(Error("the TCP connection to the peer at " + peer_ + " failed (operations " +
                                                 std::to_string(completed_ + 1) + " and later): " + what,
                                             code));
  }
  std::rethrow_exception(failure_);
}

void Outbound::refuseIfFailed() const {
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace mscclpp::detail::tcp
