#include "host/net/accept_queue.hpp"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "host/base/descriptor_error.hpp"
#include "host/net/socket.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"

namespace mscclpp::detail {

namespace {

constexpr std::chrono::milliseconds pauseTime{10};

}  // namespace

AcceptQueue::AcceptQueue(UniqueFd listener, const char* peers, Reserve reserve)
    : listener_(std::move(listener)), peers_(peers), reserve_(reserve) {
  if (reserve == Reserve::OneDescriptor && !restoreReserve()) throw SysError("eventfd", errno);
}

bool AcceptQueue::restoreReserve() noexcept {
  if (!reserved_) reserved_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  return hasReserve();
}

UniqueFd AcceptQueue::acceptWithReserve() noexcept {
  if (reserve_ == Reserve::OneDescriptor) restoreReserve();
  UniqueFd socket = acceptFrom(listener_);
  if (!socket && (errno == EMFILE || errno == ENFILE) && reserved_) {
    reserved_ = UniqueFd();
    socket = acceptFrom(listener_);
    const int errorNumber = errno;
    if (!socket) restoreReserve();
    errno = errorNumber;
  }
  return socket;
}

UniqueFd AcceptQueue::accept() {
  shortage_ = 0;
  pause_.reset();
  UniqueFd socket = acceptWithReserve();
  if (socket || !isOutOfDescriptors(errno)) return socket;
  shortage_ = errno;
  pause_ = Deadline::after(pauseTime);
  if (!std::exchange(hasWarned_, true)) {
    logMessage(LogLevel::Warn, LogSubsystem::Net, "cannot accept a connection of ", peers_, " (",
               std::strerror(shortage_), "); it is tried again. Raise the limit of open files, ulimit -n");
  }
  return socket;
}

void AcceptQueue::close() noexcept {
  ::shutdown(listener_.get(), SHUT_RDWR);
  // Those that wait at a local socket stay connected until its last copy is closed.
  while (const UniqueFd socket = acceptWithReserve()) ::shutdown(socket.get(), SHUT_RDWR);
}

int AcceptQueue::pollTimeout(int timeout) const {
  if (!isPaused()) return timeout;
  const int rest = pause_->pollTimeout();
  return timeout < 0 ? rest : std::min(timeout, rest);
}

}  // namespace mscclpp::detail
