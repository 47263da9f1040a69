#include "inbound.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "../../gpu_backend.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/logger.hpp"

namespace mscclpp::detail::tcp {

using namespace std::chrono_literals;

namespace {

// Reads a call, so that one busy peer does not starve the others.
constexpr int readsAtOnce = 8;
// Behind a large payload no more than the next message or two is taken along: it will be copied once more.
constexpr std::size_t takenAlong = 1024;
// A refused peer reads why, and closes. Closing at once could destroy that word on its way.
constexpr std::chrono::milliseconds lastPatience = 5s;

}  // namespace

Inbound::Inbound(UniqueFd socket, const Registry& registry, std::unique_ptr<StagedCopies> copies)
    : socket_(std::move(socket)), registry_(registry), copies_(std::move(copies)) {}

Inbound::~Inbound() {
  copies_.reset();  // waits for what is under way, before the leases end
}

bool Inbound::serve() noexcept {
  try {
    for (int turn = 0; turn < readsAtOnce; ++turn) {
      const Progress progress = failed_ ? discard() : receive();
      if (progress == Progress::Closed) return false;
      if (!failed_) digest();
      if (progress == Progress::Drained) break;
    }
    settle();
  } catch (const std::exception& error) {
    logMessage(LogLevel::Error, LogSubsystem::Net, "TCP transport: ", error.what());
    fail(Outcome::CopyFailed);
    // A GPU that failed moves nothing any more: its memory's owner need not wait.
    marked_.reset();
    leases_.clear();
    queried_ = false;
  }
  return sendAnswer() && !(failed_ && failed_->expired());
}

std::uint32_t Inbound::interest() const noexcept {
  return answerLeft_ > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN;
}

int Inbound::impatience() const noexcept {
  if (marked_) return marked_->queried || queried_ ? 0 : 1;
  return failed_ ? failed_->pollTimeout() : -1;
}

Inbound::Progress Inbound::receive() {
  std::array<iovec, 2> pieces;
  std::size_t used = 0;
  std::size_t direct = 0;
  Registration::Lease lease;
  if (left_ > 0) {  // the inbox is empty: the payload goes straight to where it belongs
    lease = Registration::lease(memory_);
    if (!lease) {
      refuse(Outcome::UnknownMemory);
      return Progress::More;
    }
    if (memory_->gpu() < 0) {
      pieces[0] = {target_, left_};
    } else {
      const auto room = copies_->room();
      pieces[0] = {room.data(), std::min(room.size(), left_)};
    }
    direct = pieces[used++].iov_len;
  }
  if (direct == left_) {
    const std::size_t free = inbox_.size() - inboxEnd_;
    pieces[used++] = {inbox_.data() + inboxEnd_, direct > 0 ? std::min(takenAlong, free) : free};
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
      copies_->toGpu(target_, placed);
      keep(std::move(lease));
    }
    delivered(placed);
  }
  inboxEnd_ += count - placed;
  return count < wanted ? Progress::Drained : Progress::More;
}

Inbound::Progress Inbound::discard() {
  const ssize_t count = ::recv(socket_.get(), inbox_.data(), inbox_.size(), MSG_DONTWAIT);
  if (count == 0) return Progress::Closed;
  if (count > 0 || errno == EINTR) return Progress::More;
  return errno == EAGAIN || errno == EWOULDBLOCK ? Progress::Drained : Progress::Closed;
}

void Inbound::digest() {
  while (!failed_) {
    const std::size_t present = inboxEnd_ - inboxBegin_;
    if (left_ > 0) {
      const std::size_t count = std::min(left_, present);
      if (count > 0) deliver(inbox_.data() + inboxBegin_, count);
      inboxBegin_ += count;
      if (left_ > 0) break;
      continue;
    }
    if (present < sizeof(Message)) break;
    Message message;
    std::memcpy(&message, inbox_.data() + inboxBegin_, sizeof(message));
    inboxBegin_ += sizeof(message);
    begin(message);
  }
  // A part of a message waits for the rest at the front.
  std::memmove(inbox_.data(), inbox_.data() + inboxBegin_, inboxEnd_ - inboxBegin_);
  inboxEnd_ -= inboxBegin_;
  inboxBegin_ = 0;
}

void Inbound::begin(const Message& message) {
  if (message.operation == Operation::Query) {
    if (message.number > applied_) return refuse(Outcome::Malformed);
    queried_ = true;
    return;
  }
  const bool isWrite = message.operation == Operation::Write;
  if ((!isWrite && message.operation != Operation::Update) || message.number != applied_ + 1) {
    return refuse(Outcome::Malformed);
  }
  if (!memory_ || name_ != message.memory) {
    memory_ = registry_.find(message.memory);
    name_ = message.memory;
    if (!memory_) return refuse(Outcome::UnknownMemory);
  }
  const std::uint64_t size = isWrite ? message.size : sizeof(message.value);
  if (size == 0 || message.offset > memory_->size() || size > memory_->size() - message.offset) {
    return refuse(Outcome::OutOfRange);
  }
  if (memory_->gpu() >= 0) useCopies(memory_->gpu());
  target_ = memory_->data() + message.offset;
  if (isWrite) {
    left_ = size;
  } else {
    update(message);
  }
}

void Inbound::deliver(const char* bytes, std::size_t count) {
  while (count > 0) {
    auto lease = Registration::lease(memory_);
    if (!lease) return refuse(Outcome::UnknownMemory);
    std::size_t placed = count;
    if (memory_->gpu() < 0) {
      std::memcpy(target_, bytes, placed);
    } else {
      const auto room = copies_->room();
      placed = std::min(placed, room.size());
      std::memcpy(room.data(), bytes, placed);
      copies_->toGpu(target_, placed);
      keep(std::move(lease));
    }
    bytes += placed;
    count -= placed;
    delivered(placed);
  }
}

void Inbound::delivered(std::size_t count) {
  target_ += count;
  left_ -= count;
  if (left_ == 0) ++applied_;
}

void Inbound::update(const Message& message) {
  if (reinterpret_cast<std::uintptr_t>(target_) % sizeof(message.value) != 0) return refuse(Outcome::OutOfRange);
  auto lease = Registration::lease(memory_);
  if (!lease) return refuse(Outcome::UnknownMemory);
  if (memory_->gpu() >= 0) {
    copies_->setWord(target_, message.value);
    keep(std::move(lease));
  } else {
    if (copies_) copies_->finish();  // what it announces may lie in GPU memory
    // Whoever acquires the value sees the writes before it: this thread made them.
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(target_)).store(message.value, std::memory_order_release);
  }
  ++applied_;
}

// One stream orders all: copies for another GPU wait for those under way.
void Inbound::useCopies(int gpu) {
  if (copies_ && copies_->gpu() == gpu) return;
  if (copies_) {
    copies_->finish();
    if (marked_ && marked_->queried) answer(marked_->applied);
    marked_.reset();
    leases_.clear();
    leased_.reset();
  }
  copies_ = makeStagedCopies(gpu);
}

void Inbound::keep(Registration::Lease lease) {
  if (leased_ == memory_) return;
  leases_.push_back(std::move(lease));
  leased_ = memory_;
}

// Says what has arrived, and lets go of its memory. Of copies that is known only later, and more may have been started by
// then: so one mark at a time is set behind what is to be settled.
void Inbound::settle() {
  if (marked_ && copies_->reached()) {
    if (marked_->queried) answer(marked_->applied);
    marked_.reset();
  }
  if (marked_ || (!queried_ && leases_.empty())) return;
  if (leases_.empty() && !copies_) {
    answer(applied_);
  } else {
    copies_->mark();
    marked_ = Marked{std::move(leases_), queried_, applied_};
    leases_.clear();
    leased_.reset();
  }
  queried_ = false;
}

void Inbound::answer(std::uint64_t completed) {
  // The answer before is still on its way out: the peer does not listen, though it asked.
  if (failed_ || answerLeft_ > 0) return;
  answered_ = completed;
  answer_ = {completed, Outcome::Fine, 0};
  answerLeft_ = sizeof(answer_);
}

bool Inbound::sendAnswer() {
  while (answerLeft_ > 0) {
    const char* rest = reinterpret_cast<const char*>(&answer_) + sizeof(answer_) - answerLeft_;
    const ssize_t count = ::send(socket_.get(), rest, answerLeft_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    answerLeft_ -= static_cast<std::size_t>(count);
  }
  return true;
}

// The answer says what has arrived before: copies under way have not.
void Inbound::refuse(Outcome outcome) {
  if (copies_) copies_->finish();
  fail(outcome);
}

void Inbound::fail(Outcome outcome) noexcept {
  if (!failed_) failed_ = Deadline::after(lastPatience);
  // An answer of which a part is out cannot be replaced; the peer then learns only that the connection ended.
  if (answerLeft_ == 0 || answerLeft_ == sizeof(answer_)) {
    // Copies that failed were of operations that had been applied.
    answer_ = {outcome == Outcome::CopyFailed ? answered_ : applied_, outcome, 0};
    answerLeft_ = sizeof(answer_);
  }
}

}  // namespace mscclpp::detail::tcp
