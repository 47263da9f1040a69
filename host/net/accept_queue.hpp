// Accepting connections in a process that may be out of file descriptors or memory.
#pragma once

#include <poll.h>

#include <optional>

#include "host/base/deadline.hpp"
#include "host/base/unique_fd.hpp"

namespace mscclpp::detail {

/// The connections that wait at a listening socket, TCP or local. One that cannot be accepted for lack of descriptors
/// or memory stays in the queue, and poll(2) would report it again at once: so polling the listener pauses for some
/// milliseconds.
class AcceptQueue {
 public:
  /// Whether a descriptor is kept in reserve, with which a connection can be accepted when there is no other left.
  enum class Reserve { Nothing, OneDescriptor };

  /// `listener` listens and does not block. `peers` says in a warning whose connections these are: "other ranks".
  /// Throws SysError if there is no descriptor for the reserve.
  AcceptQueue(UniqueFd listener, const char* peers, Reserve reserve = Reserve::Nothing);

  /// The next connection, which does not block; empty if there is none that can be accepted now.
  UniqueFd accept();
  /// Why the last accept() failed: EMFILE, ENFILE, ENOBUFS or ENOMEM; 0 if it did not fail, or the queue is empty.
  int shortage() const noexcept { return shortage_; }

  /// Takes a descriptor as the reserve if there is none: it was used for a connection. Returns whether there is one.
  bool restoreReserve() noexcept;
  bool hasReserve() const noexcept { return static_cast<bool>(reserved_); }

  /// Whether to poll the listener only later, see pollTimeout().
  bool isPaused() const { return pause_ && !pause_->expired(); }
  /// For poll(2), which ignores the entry during a pause.
  pollfd pollEntry() const { return {isPaused() ? -1 : listener_.get(), POLLIN, 0}; }
  /// `timeout`, which may be -1 for none, or the rest of the pause if that is shorter.
  int pollTimeout(int timeout) const;

  /// Refuses connections from now on and ends those that wait, even if a forked child holds a copy of the listener.
  void close() noexcept;

  const UniqueFd& listener() const noexcept { return listener_; }

 private:
  UniqueFd acceptWithReserve() noexcept;

  UniqueFd listener_;
  const char* peers_;
  Reserve reserve_;
  UniqueFd reserved_;
  int shortage_ = 0;
  std::optional<Deadline> pause_;
  bool hasWarned_ = false;
};

}  // namespace mscclpp::detail
