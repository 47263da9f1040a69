#include "connection_base.hpp"

#include <algorithm>
#include <string>
#include <thread>

#include "lost_rank.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::detail {

void ConnectionBase::flush(std::chrono::microseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const std::uint64_t target = issued_;
  const auto start = Clock::now();
  while (completed() < target) {
    refuseIfAborted();
    const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
    if (waited >= timeout) {
      throw Error("Connection::flush: operations over " + path() + " did not complete in " +
                      std::to_string(timeout.count()) + " us",
                  ErrorCode::Timeout);
    }
    awaitProgress(waited, timeout - waited);
  }
}

void ConnectionBase::awaitProgress(std::chrono::microseconds waited, std::chrono::microseconds left) {
  // Most waits are short; a longer one leaves the core to others.
  if (waited < std::chrono::microseconds(200)) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::min(left, std::chrono::microseconds(50)));
  }
}

void ConnectionBase::abort(const RankFailure& failure) noexcept {
  {
    std::lock_guard lock(lostMutex_);
    keepFirst(lost_, failure);
  }
  abort();
}

ConnectionBase::Ending ConnectionBase::ending() const {
  std::lock_guard lock(lostMutex_);
  if (lost_) return {describe(*lost_), ErrorCode::RemoteError};
  return {"it was aborted here", ErrorCode::Aborted};
}

void ConnectionBase::refuseIfAborted() const {
  if (!isAborted()) return;
  const auto [reason, code] = ending();
  throw Error("the connection over " + path() + " has ended: " + reason, code);
}

std::string ConnectionBase::path() const {
  return nameOf(local_.transport());
}

void ConnectionBase::throwBadRange(const char* which, const RegisteredMemory& memory, std::uint64_t offset,
                                   std::uint64_t size, Transport transport) {
  if (offset > memory.size() || size > memory.size() - offset) {
    throw Error(std::string("Connection: offset ") + std::to_string(offset) + " and size " + std::to_string(size) +
                    " leave the " + which + " memory of " + std::to_string(memory.size()) + " bytes",
                ErrorCode::InvalidUsage);
  }
  throw Error(std::string("Connection: the ") + which + " memory is reached by " + nameOf(memory.transports()) +
                  ", but the connection uses " + nameOf(transport) + " on that side; register it for that transport",
              ErrorCode::InvalidUsage);
}

void ConnectionBase::throwWithoutHandle(Transport transport) {
  throw Error("the memory has no handle for " + nameOf(transport), ErrorCode::InternalError);
}

}  // namespace mscclpp::detail
