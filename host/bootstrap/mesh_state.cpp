#include "host/bootstrap/mesh_state.hpp"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

namespace {

UniqueFd makeWakeup() {
  UniqueFd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd) throw SysError("eventfd", errno);
  return fd;
}

}  // namespace

MeshState::MeshState(int ownRank, int numRanks, std::size_t inboxLimit)
    : rank(ownRank), wakeup(makeWakeup()), peers(numRanks), inbox(numRanks, inboxLimit) {
  for (int i = 0; i < numRanks; ++i) peers[i].rank = i;
  // Subscribes first: no other callback delays the waiting calls.
  failures.onFailure([this](const RankFailure&) { wakeCallers(); });
  failures.onDeparture([this](int) { wakeCallers(); });
}

void MeshState::wakeThread() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t count = ::write(wakeup.get(), &one, sizeof(one));
}

void MeshState::clearWakeup() noexcept {
  std::uint64_t count;
  [[maybe_unused]] const ssize_t bytesRead = ::read(wakeup.get(), &count, sizeof(count));
}

void MeshState::wakeCallers() noexcept {
  { std::lock_guard lock(mutex); }  // a caller has either seen the change, or is waiting and will be notified
  changed->notify_all();
}

void MeshState::queueFailureReport(const RankFailure& failure, std::vector<MeshPeer*>* receivers) {
  const std::string reason = failure.reason.substr(0, MessageHeader::maxControlBytes);
  for (MeshPeer& peer : peers) {
    if (peer.state != PeerState::Connected || !peer.socket) continue;
    peer.writer.push(encodeMessage(MessageType::FailureReport, failure.rank, reason.data(), reason.size()));
    if (receivers != nullptr) receivers->push_back(&peer);
  }
}

void MeshState::closeSocket(MeshPeer& peer) noexcept {
  std::lock_guard lock(mutex);
  if (peer.socket) ::shutdown(peer.socket.get(), SHUT_RDWR);
  peer.socket = UniqueFd();
  peer.process = UniqueFd();
  peer.writer.clear();
}

}  // namespace mscclpp::detail
