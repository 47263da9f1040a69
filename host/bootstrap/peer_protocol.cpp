#include "host/bootstrap/peer_protocol.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "host/base/printable_text.hpp"
#include "host/bootstrap/process_watch.hpp"
#include "mscclpp/host/base/logger.hpp"

namespace mscclpp::detail {

using namespace std::chrono_literals;

namespace {

// Per peer and iteration, so that one busy peer does not starve the others.
constexpr std::size_t readBudget = std::size_t{8} << 20;
// A rank that leaves because of a failure that its bootstrap has not detected yet sends a goodbye without a report. The
// report of another rank, or the end of the failed rank's own connection, follows within this time.
constexpr std::chrono::milliseconds departureGracePeriod = 250ms;

}  // namespace

bool PeerProtocol::readFrom(MeshPeer& peer) {
  if (peer.discarding) {
    discardFrom(peer);
    return true;
  }
  for (std::size_t budget = readBudget; budget > 0 && peer.socket && !peer.discarding;) {
    const std::size_t before = budget;
    const StreamStatus status = peer.reader.read(peer.socket, budget);
    if (budget < before) peer.missedHeartbeats = 0;
    switch (status) {
      case StreamStatus::Header:
        if (!acceptHeader(peer)) return true;
        break;
      case StreamStatus::Message:
        if (!handleMessage(peer)) return true;
        break;
      case StreamStatus::NoMemory:
        memoryIsShort_ = true;
        return false;
      case StreamStatus::Blocked:
        return budget > 0;
      case StreamStatus::Closed:
        handleDisconnect(peer, "its process ended or was killed (connection: closed without a goodbye)");
        return true;
      case StreamStatus::Broken:
        handleDisconnect(peer,
                         std::string("its process ended or was killed (connection: ") + std::strerror(errno) + ")");
        return true;
    }
  }
  return false;
}

bool PeerProtocol::acceptHeader(MeshPeer& peer) {
  const MessageHeader& header = peer.reader.header();
  if (!header.isValid()) {
    rejectPeer(peer, "it sent bytes that are not a message");
    return false;
  }
  if (header.type != MessageType::Data) return true;
  {
    std::lock_guard lock(mesh_.mutex);
    if (mesh_.shuttingDown || mesh_.inbox.hasRoom(peer.rank, header.size)) return true;
  }
  rejectPeer(peer, "it sent more than " + std::to_string(mesh_.inbox.limit()) + " bytes that rank " +
                       std::to_string(mesh_.rank) + " has not received");
  return false;
}

// Returns false if there is nothing more to read from this peer.
bool PeerProtocol::handleMessage(MeshPeer& peer) {
  const MessageHeader header = peer.reader.header();
  Bytes payload = peer.reader.takePayload();
  switch (header.type) {
    case MessageType::Data: {
      std::lock_guard lock(mesh_.mutex);
      if (!mesh_.shuttingDown) mesh_.inbox.put(peer.rank, header.tag, std::move(payload));
      break;
    }
    case MessageType::Heartbeat:
      return true;
    case MessageType::Goodbye:
      handleGoodbye(peer);
      break;
    case MessageType::FailureReport:
      if (header.tag < 0 || header.tag >= static_cast<int>(mesh_.peers.size())) {
        rejectPeer(peer, "it reported the failure of a rank that does not exist");
        return false;
      }
      reportFailure({header.tag, printableText(std::string(payload.begin(), payload.end()))});
      return true;
    case MessageType::Process: {
      ProcessIdentity identity{};
      if (payload.size() != sizeof(identity)) {
        rejectPeer(peer, "it sent bytes that are not a message");
        return false;
      }
      std::memcpy(&identity, payload.data(), sizeof(identity));
      peer.process = watchProcess(identity);
      return true;
    }
    case MessageType::ContextLeft:
      if (header.tag < 1 || header.tag > largestContext || !payload.empty()) {
        rejectPeer(peer, "it sent bytes that are not a message");
        return false;
      }
      mesh_.contexts.leave(header.tag, peer.rank);
      mesh_.wakeCallers();
      return true;
  }
  mesh_.changed->notify_all();
  return true;
}

void PeerProtocol::handleGoodbye(MeshPeer& peer) {
  std::lock_guard lock(mesh_.mutex);
  peer.state = PeerState::Leaving;
  peer.departure = Deadline::after(departureGracePeriod);
  peer.writer.clear();
  // The peer waits for this before it closes, so that none of its messages is lost to a reset.
  ::shutdown(peer.socket.get(), SHUT_WR);
  peer.writeClosed = true;
  peer.closeAfterWrite = false;
}

// Its last bytes have arrived: the system closes a process's sockets before it reports its end. If the connection is
// still open, another process has inherited it.
void PeerProtocol::handleProcessEnd(MeshPeer& peer) {
  if (!readFrom(peer)) return;
  peer.process = UniqueFd();
  handleDisconnect(peer, "its process ended or was killed (another process holds its connection)");
}

// These bytes are discarded; the connection stays open until the peer has read why it was rejected.
void PeerProtocol::discardFrom(MeshPeer& peer) {
  discarded_.resize(std::size_t{64} << 10);
  for (std::size_t budget = readBudget; budget > 0;) {
    const ssize_t count = ::recv(peer.socket.get(), discarded_.data(), discarded_.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count <= 0) return mesh_.closeSocket(peer);
    budget -= std::min(budget, static_cast<std::size_t>(count));
  }
}

void PeerProtocol::writeTo(MeshPeer& peer) {
  if (peer.writeClosed) return;
  std::size_t written = 0;
  const StreamStatus status = peer.writer.write(peer.socket, written);
  if (written > 0) {
    progressed_ = true;
    mesh_.wakeCallers();
  }
  if (status == StreamStatus::NoMemory) memoryIsShort_ = true;
  // readFrom handles a broken connection: a goodbye may still be unread there.
  if (status == StreamStatus::Message && peer.closeAfterWrite) {
    ::shutdown(peer.socket.get(), SHUT_WR);
    peer.closeAfterWrite = false;
    peer.writeClosed = true;
  }
}

void PeerProtocol::finishDepartures() {
  std::vector<int> left;
  {
    std::lock_guard lock(mesh_.mutex);
    for (MeshPeer& peer : mesh_.peers) {
      if (peer.state != PeerState::Leaving || !(peer.departure.expired() || mesh_.failures.hasFailed())) continue;
      peer.state = PeerState::Left;
      if (!mesh_.shuttingDown) left.push_back(peer.rank);
    }
  }
  for (const int rank : left) mesh_.failures.leave(rank);
}

bool PeerProtocol::countsAsFailure(const MeshPeer& peer) {
  std::lock_guard lock(mesh_.mutex);
  return peer.state == PeerState::Connected && !mesh_.shuttingDown;
}

void PeerProtocol::handleDisconnect(MeshPeer& peer, const std::string& reason) {
  const bool isFailure = countsAsFailure(peer);
  mesh_.closeSocket(peer);
  // Sets the state last: a caller that sees it also sees the failure.
  if (isFailure) reportFailure({peer.rank, reason});
  {
    std::lock_guard lock(mesh_.mutex);
    if (peer.state == PeerState::Connected) peer.state = PeerState::Failed;
  }
  mesh_.changed->notify_all();
}

// The peer violates the protocol. All ranks, including the peer itself, must attribute the failure to it and not to
// this rank: so the peer gets the report, and the connection stays open until the peer has closed its end.
void PeerProtocol::rejectPeer(MeshPeer& peer, const std::string& reason) {
  if (!countsAsFailure(peer)) return handleDisconnect(peer, reason);
  reportFailure({peer.rank, reason});
  peer.discarding = true;
  peer.closeAfterWrite = true;
  {
    std::lock_guard lock(mesh_.mutex);
    peer.state = PeerState::Failed;
  }
  writeTo(peer);
  mesh_.changed->notify_all();
}

void PeerProtocol::reportFailure(RankFailure failure) {
  failure.reason.resize(std::min(failure.reason.size(), MessageHeader::maxControlBytes));
  bool isFirst = false;
  std::vector<MeshPeer*> receivers;
  {
    std::lock_guard lock(mesh_.mutex);
    isFirst = !mesh_.failures.hasFailed() && !std::exchange(mesh_.reportingFailure, true);
    if (isFirst) mesh_.queueFailureReport(failure, &receivers);
  }
  if (!isFirst) {
    mesh_.failures.failLater(failure);
    mesh_.wakeCallers();
    return;
  }
  for (MeshPeer* peer : receivers) writeTo(*peer);
  logMessage(LogLevel::Warn, LogSubsystem::Net, "rank ", mesh_.rank, ": ", describe(failure));
  mesh_.failures.fail(failure);
}

}  // namespace mscclpp::detail
