#include "host/transport/tcp/tcp_receiver.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "host/cuda/gpu_backend.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"

namespace mscclpp::detail::tcp {

using namespace std::chrono_literals;

namespace {

// Reads per call, so that one busy peer does not starve the others.
constexpr int maxReadsPerCall = 8;
// After a large payload, reads ahead by no more than a message or two: what is read ahead is copied once more.
constexpr std::size_t maxReadAhead = 1024;
// A rejected peer reads the reason, and closes. Closing at once could discard the reason before it is delivered.
constexpr std::chrono::milliseconds lingerTimeout = 5s;

}  // namespace

TcpReceiver::TcpReceiver(UniqueFd socket, const Registry& registry, std::unique_ptr<StagingCopier> copies)
    : socket_(std::move(socket)), registry_(registry), copier_(std::move(copies)) {}

TcpReceiver::~TcpReceiver() {
  copier_.reset();  // waits for copies in flight, before the guards are released
}

bool TcpReceiver::serve() noexcept {
  try {
    for (int turn = 0; turn < maxReadsPerCall; ++turn) {
      const Progress progress = failed_ ? discard() : receive();
      if (progress == Progress::Closed) return false;
      if (!failed_) processReceived();
      if (progress == Progress::Drained) break;
    }
    acknowledgeCompleted();
  } catch (const std::exception& error) {
    logMessage(LogLevel::Error, LogSubsystem::Net, "TCP transport: ", error.what());
    fail(Status::CopyFailed);
    // A failed GPU accesses nothing any more: the memory's owner need not wait.
    pendingAck_.reset();
    guards_.clear();
    ackRequested_ = false;
  }
  return sendReply() && !(failed_ && failed_->expired());
}

std::uint32_t TcpReceiver::interest() const noexcept {
  return replyBytesLeft_ > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN;
}

int TcpReceiver::pollTimeout() const noexcept {
  if (pendingAck_) return pendingAck_->ackRequested || ackRequested_ ? 0 : 1;
  return failed_ ? failed_->pollTimeout() : -1;
}

TcpReceiver::Progress TcpReceiver::receive() {
  std::array<iovec, 2> pieces;
  std::size_t used = 0;
  std::size_t direct = 0;
  Registration::Guard guard;
  if (payloadLeft_ > 0) {  // the receive buffer is empty: read the payload directly to its destination
    guard = Registration::acquire(memory_);
    if (!guard) {
      reject(Status::UnknownMemory);
      return Progress::More;
    }
    if (memory_->gpu() < 0) {
      pieces[0] = {target_, payloadLeft_};
    } else {
      const auto room = copier_->stagingBuffer();
      pieces[0] = {room.data(), std::min(room.size(), payloadLeft_)};
    }
    direct = pieces[used++].iov_len;
  }
  if (direct == payloadLeft_) {
    const std::size_t free = receiveBuffer_.size() - receiveEnd_;
    pieces[used++] = {receiveBuffer_.data() + receiveEnd_, direct > 0 ? std::min(maxReadAhead, free) : free};
  }
  const std::size_t wanted = pieces[0].iov_len + (used == 2 ? pieces[1].iov_len : 0);

  const ssize_t result = ::readv(socket_.get(), pieces.data(), static_cast<int>(used));
  if (result < 0 && errno == EINTR) return Progress::More;
  if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Progress::Drained;
  if (result <= 0) return Progress::Closed;
  const auto count = static_cast<std::size_t>(result);
  const std::size_t placed = std::min(count, direct);
  if (placed > 0) {
    if (memory_->gpu() >= 0) {
      copier_->copyToGpu(target_, placed);
      holdGuard(std::move(guard));
    }
    advancePayload(placed);
  }
  receiveEnd_ += count - placed;
  return count < wanted ? Progress::Drained : Progress::More;
}

TcpReceiver::Progress TcpReceiver::discard() {
  const ssize_t count = ::recv(socket_.get(), receiveBuffer_.data(), receiveBuffer_.size(), MSG_DONTWAIT);
  if (count == 0) return Progress::Closed;
  if (count > 0 || errno == EINTR) return Progress::More;
  return errno == EAGAIN || errno == EWOULDBLOCK ? Progress::Drained : Progress::Closed;
}

void TcpReceiver::processReceived() {
  while (!failed_) {
    const std::size_t present = receiveEnd_ - receiveBegin_;
    if (payloadLeft_ > 0) {
      const std::size_t count = std::min(payloadLeft_, present);
      if (count > 0) copyPayload(receiveBuffer_.data() + receiveBegin_, count);
      receiveBegin_ += count;
      if (payloadLeft_ > 0) break;
      continue;
    }
    if (present < sizeof(Message)) break;
    Message message;
    std::memcpy(&message, receiveBuffer_.data() + receiveBegin_, sizeof(message));
    receiveBegin_ += sizeof(message);
    startOperation(message);
  }
  // Moves an incomplete message to the front.
  std::memmove(receiveBuffer_.data(), receiveBuffer_.data() + receiveBegin_, receiveEnd_ - receiveBegin_);
  receiveEnd_ -= receiveBegin_;
  receiveBegin_ = 0;
}

void TcpReceiver::startOperation(const Message& message) {
  if (message.operation == Operation::Query) {
    if (message.number > applied_) return reject(Status::Malformed);
    ackRequested_ = true;
    return;
  }
  const bool isWrite = message.operation == Operation::Write;
  if ((!isWrite && message.operation != Operation::Update) || message.number != applied_ + 1) {
    return reject(Status::Malformed);
  }
  if (!memory_ || name_ != message.memory) {
    memory_ = registry_.find(message.memory);
    name_ = message.memory;
    if (!memory_) return reject(Status::UnknownMemory);
  }
  const std::uint64_t size = isWrite ? message.size : sizeof(message.value);
  if (size == 0 || message.offset > memory_->size() || size > memory_->size() - message.offset) {
    return reject(Status::OutOfRange);
  }
  if (memory_->gpu() >= 0) selectGpu(memory_->gpu());
  target_ = memory_->data() + message.offset;
  if (isWrite) {
    payloadLeft_ = size;
  } else {
    update(message);
  }
}

void TcpReceiver::copyPayload(const char* bytes, std::size_t count) {
  while (count > 0) {
    auto guard = Registration::acquire(memory_);
    if (!guard) return reject(Status::UnknownMemory);
    std::size_t placed = count;
    if (memory_->gpu() < 0) {
      std::memcpy(target_, bytes, placed);
    } else {
      const auto room = copier_->stagingBuffer();
      placed = std::min(placed, room.size());
      std::memcpy(room.data(), bytes, placed);
      copier_->copyToGpu(target_, placed);
      holdGuard(std::move(guard));
    }
    bytes += placed;
    count -= placed;
    advancePayload(placed);
  }
}

void TcpReceiver::advancePayload(std::size_t count) {
  target_ += count;
  payloadLeft_ -= count;
  if (payloadLeft_ == 0) ++applied_;
}

void TcpReceiver::update(const Message& message) {
  if (reinterpret_cast<std::uintptr_t>(target_) % sizeof(message.value) != 0) return reject(Status::OutOfRange);
  auto guard = Registration::acquire(memory_);
  if (!guard) return reject(Status::UnknownMemory);
  if (memory_->gpu() >= 0) {
    copier_->storeWord(target_, message.value);
    holdGuard(std::move(guard));
  } else {
    if (copier_) copier_->synchronize();  // the data before it may be in GPU memory
    // A thread that acquires the value sees the writes before it, which this thread made.
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(target_)).store(message.value, std::memory_order_release);
  }
  ++applied_;
}

// One stream orders all copies: those for another GPU wait for those in flight.
void TcpReceiver::selectGpu(int gpu) {
  if (copier_ && copier_->gpu() == gpu) return;
  if (copier_) {
    copier_->synchronize();
    if (pendingAck_ && pendingAck_->ackRequested) reply(pendingAck_->applied);
    pendingAck_.reset();
    guards_.clear();
    guarded_.reset();
  }
  copier_ = makeStagingCopier(gpu);
}

void TcpReceiver::holdGuard(Registration::Guard guard) {
  if (guarded_ == memory_) return;
  guards_.push_back(std::move(guard));
  guarded_ = memory_;
}

// Acknowledges what has arrived, and releases the guards of its memory. For copies this is known only later, and more
// may have been started by then: so one event at a time is recorded after the copies to be acknowledged.
void TcpReceiver::acknowledgeCompleted() {
  if (pendingAck_ && copier_->isEventComplete()) {
    if (pendingAck_->ackRequested) reply(pendingAck_->applied);
    pendingAck_.reset();
  }
  if (pendingAck_ || (!ackRequested_ && guards_.empty())) return;
  if (guards_.empty() && !copier_) {
    reply(applied_);
  } else {
    copier_->recordEvent();
    pendingAck_ = PendingAck{std::move(guards_), ackRequested_, applied_};
    guards_.clear();
    guarded_.reset();
  }
  ackRequested_ = false;
}

void TcpReceiver::reply(std::uint64_t completed) {
  // The previous reply has not been sent yet: the peer is not reading, although it has sent a query.
  if (failed_ || replyBytesLeft_ > 0) return;
  acknowledged_ = completed;
  reply_ = {completed, Status::Ok, 0};
  replyBytesLeft_ = sizeof(reply_);
}

bool TcpReceiver::sendReply() {
  while (replyBytesLeft_ > 0) {
    const char* rest = reinterpret_cast<const char*>(&reply_) + sizeof(reply_) - replyBytesLeft_;
    const ssize_t count = ::send(socket_.get(), rest, replyBytesLeft_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    replyBytesLeft_ -= static_cast<std::size_t>(count);
  }
  return true;
}

// The reply acknowledges what has arrived so far, without copies in flight.
void TcpReceiver::reject(Status status) {
  if (copier_) copier_->synchronize();
  fail(status);
}

void TcpReceiver::fail(Status status) noexcept {
  if (!failed_) failed_ = Deadline::after(lingerTimeout);
  // A reply that is partly sent cannot be replaced; the peer then sees only that the connection ended.
  if (replyBytesLeft_ == 0 || replyBytesLeft_ == sizeof(reply_)) {
    // Failed copies belong to operations that were counted as applied.
    reply_ = {status == Status::CopyFailed ? acknowledged_ : applied_, status, 0};
    replyBytesLeft_ = sizeof(reply_);
  }
}

}  // namespace mscclpp::detail::tcp
