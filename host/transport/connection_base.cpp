#include "host/transport/connection_base.hpp"

#include <algorithm>
#include <string>
#include <thread>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

void ConnectionBase::flush(std::chrono::microseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const std::uint64_t target = issued_;
  const auto start = Clock::now();
  while (completed() < target) {
    throwIfEnded();
    const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
    if (waited >= timeout) {
      throw Error("Connection::flush: operations over " + description() + " did not complete in " +
                      std::to_string(timeout.count()) + " us",
                  ErrorCode::Timeout);
    }
    waitForProgress(waited, timeout - waited);
  }
}

void ConnectionBase::waitForProgress(std::chrono::microseconds waited, std::chrono::microseconds left) {
  // Most waits are short; a longer one yields the core to other threads.
  if (waited < std::chrono::microseconds(200)) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::min(left, std::chrono::microseconds(50)));
  }
}

std::optional<RankFailure> ConnectionBase::peerFailure() const {
  if (!failures_ || !failures_->hasFailed(peer_)) return std::nullopt;
  const bool isOwnAbort = failures_->errorCode() == ErrorCode::Aborted && failures_->failure()->rank == peer_;
  return isOwnAbort ? std::nullopt : failures_->failureOf(peer_);
}

ConnectionBase::EndReason ConnectionBase::endReason() const {
  if (const auto failure = peerFailure()) return {describe(*failure), ErrorCode::RemoteError};
  if (failures_->hasLeft(peer_)) return {describeDeparture(peer_), ErrorCode::RemoteError};
  return {"the communicator was aborted", ErrorCode::Aborted};
}

void ConnectionBase::throwIfEnded() const {
  if (!hasEnded()) return;
  const auto [reason, code] = endReason();
  throw Error("the connection over " + description() + " has ended: " + reason, code);
}

std::string ConnectionBase::peerText(const std::string& address) const {
  return (peer_ < 0 ? "the peer" : "rank " + std::to_string(peer_)) + " at " + address;
}

std::string ConnectionBase::description() const {
  return nameOf(local_.transport());
}

void ConnectionBase::throwBadRange(const char* which, const RegisteredMemory& memory, std::uint64_t offset,
                                   std::uint64_t size, Transport transport) {
  if (offset > memory.size() || size > memory.size() - offset) {
    throw Error(std::string("Connection: offset ") + std::to_string(offset) + " and size " + std::to_string(size) +
                    " exceed the " + which + " memory of " + std::to_string(memory.size()) + " bytes",
                ErrorCode::InvalidUsage);
  }
  throw Error(std::string("Connection: the ") + which + " memory is reached by " + nameOf(memory.transports()) +
                  ", but the connection uses " + nameOf(transport) + " on that side; register it for that transport",
              ErrorCode::InvalidUsage);
}

void ConnectionBase::throwWithoutHandle(Transport transport) {
  throw Error("the memory is not registered for " + nameOf(transport), ErrorCode::InternalError);
}

}  // namespace mscclpp::detail
