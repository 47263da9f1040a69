#include "host/bootstrap/mesh_thread.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"

namespace mscclpp::detail {

using namespace std::chrono_literals;

namespace {

// A peer has timed out when this many of this rank's own heartbeats pass without a message from it. This does not use a
// clock: a process that was itself stopped for a while must not report the others as failed.
constexpr int maxMissedHeartbeats = 4;
constexpr std::chrono::milliseconds shutdownTimeout = 2s;
constexpr std::chrono::milliseconds memoryRetryInterval = 10ms;

}  // namespace

struct MeshThread::PollSet {
  enum class Source { Socket, Process };

  std::vector<pollfd> entries;
  std::vector<std::pair<MeshPeer*, Source>> sources;  // of each entry
  int openSockets = 0;
  int timeout = -1;  // until the next departure, in milliseconds

  void clear(int wakeup) {
    entries.assign(1, pollfd{wakeup, POLLIN, 0});
    sources.assign(1, {nullptr, Source::Socket});
    openSockets = 0;
    timeout = -1;
  }
  void add(MeshPeer& peer, Source source, int descriptor, short events) {
    entries.push_back({descriptor, events, 0});
    sources.emplace_back(&peer, source);
  }
  void waitAtMost(int milliseconds) { timeout = timeout < 0 ? milliseconds : std::min(timeout, milliseconds); }
};

void MeshThread::run() noexcept {
  try {
    serve();
    for (MeshPeer& peer : mesh_.peers) mesh_.closeSocket(peer);
  } catch (const std::exception& error) {
    // Out of memory or descriptors: without this thread nothing can arrive any more, so every call must report it.
    logMessage(LogLevel::Error, LogSubsystem::Net, "rank ", mesh_.rank,
               " closed its connections to the other ranks after an internal error: ", error.what());
    for (MeshPeer& peer : mesh_.peers) mesh_.closeSocket(peer);
    mesh_.failures.fail(
        {mesh_.rank, std::string("it closed its connections after an internal error: ") + error.what()});
  }
}

void MeshThread::serve() {
  const bool heartbeatsEnabled = heartbeatTimeout_ > 0ms;
  const auto interval = std::max(heartbeatTimeout_ / (maxMissedHeartbeats + 1), 1ms);
  Deadline nextHeartbeat = Deadline::after(interval);
  Deadline shutdownDeadline = Deadline::after(0ms);
  bool memoryIsShort = false;
  PollSet set;
  while (true) {
    if (mustSendGoodbyes()) {
      sendGoodbyes();
      goodbyesQueued_ = true;
      shutdownDeadline = Deadline::after(shutdownTimeout);
    }
    protocol_.finishDepartures();
    memoryIsShort |= protocol_.takeMemoryShortage();
    fillPollSet(set, memoryIsShort);
    if (protocol_.takeProgress()) shutdownDeadline = Deadline::after(shutdownTimeout);
    if (goodbyesQueued_ && (set.openSockets == 0 || shutdownDeadline.expired())) return;

    if (heartbeatsEnabled) set.waitAtMost(nextHeartbeat.pollTimeout());
    if (goodbyesQueued_) set.waitAtMost(shutdownDeadline.pollTimeout(interval));
    if (memoryIsShort) set.waitAtMost(static_cast<int>(memoryRetryInterval.count()));
    memoryIsShort = false;
    if (::poll(set.entries.data(), set.entries.size(), set.timeout) < 0) {
      if (errno != EINTR && errno != ENOMEM && errno != EAGAIN) throw SysError("poll", errno);
      memoryIsShort = errno != EINTR;
      continue;
    }
    handleEvents(set);
    if (heartbeatsEnabled && nextHeartbeat.expired()) {
      sendHeartbeats();
      nextHeartbeat = Deadline::after(interval);
    }
  }
}

// When memory is short the sockets would be ready again at once: they are left out for one iteration.
void MeshThread::fillPollSet(PollSet& set, bool withoutSockets) {
  set.clear(mesh_.wakeup.get());
  std::lock_guard lock(mesh_.mutex);
  for (MeshPeer& peer : mesh_.peers) {
    if (peer.state == PeerState::Leaving) set.waitAtMost(peer.departure.pollTimeout());
    if (!peer.socket) continue;
    ++set.openSockets;
    if (withoutSockets) continue;
    const bool wantsToWrite = !peer.writeClosed && (peer.writer.bytes() > 0 || peer.closeAfterWrite);
    set.add(peer, PollSet::Source::Socket, peer.socket.get(),
            static_cast<short>(POLLIN | (wantsToWrite ? POLLOUT : 0)));
    if (peer.process && peer.state == PeerState::Connected)
      set.add(peer, PollSet::Source::Process, peer.process.get(), POLLIN);
  }
}

void MeshThread::handleEvents(const PollSet& set) {
  if ((set.entries[0].revents & POLLIN) != 0) mesh_.clearWakeup();
  for (std::size_t i = 1; i < set.entries.size(); ++i) {
    const auto [peer, source] = set.sources[i];
    const short events = set.entries[i].revents;
    if (events == 0 || !peer->socket) continue;
    if (source == PollSet::Source::Process) {
      protocol_.handleProcessEnd(*peer);
      continue;
    }
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) protocol_.readFrom(*peer);
    if ((events & POLLOUT) != 0 && peer->socket) protocol_.writeTo(*peer);
  }
}

void MeshThread::sendHeartbeats() {
  for (MeshPeer& peer : mesh_.peers) {
    {
      std::lock_guard lock(mesh_.mutex);
      if (peer.state != PeerState::Connected || !peer.socket) continue;
      // Pending data serves as a heartbeat.
      if (peer.writer.bytes() == 0 && !mesh_.shuttingDown)
        peer.writer.push(encodeMessage(MessageType::Heartbeat, 0, nullptr, 0));
    }
    protocol_.writeTo(peer);
    if (++peer.missedHeartbeats <= maxMissedHeartbeats) continue;
    const std::string reason = "nothing was received from it for " + formatSeconds(heartbeatTimeout_) +
                               " (its process is stopped, or the network connection is interrupted)";
    // Before the connection closes: if the peer resumes, it can read why it was disconnected.
    if (!goodbyesQueued_) protocol_.reportFailure({peer.rank, reason});
    protocol_.handleDisconnect(peer, reason);
  }
}

bool MeshThread::mustSendGoodbyes() {
  std::lock_guard lock(mesh_.mutex);
  return mesh_.shuttingDown && !goodbyesQueued_;
}

void MeshThread::sendGoodbyes() {
  for (MeshPeer& peer : mesh_.peers) {
    {
      std::lock_guard lock(mesh_.mutex);
      if (!peer.socket) continue;
      if (peer.state == PeerState::Connected) {
        peer.writer.push(encodeMessage(MessageType::Goodbye, 0, nullptr, 0));
        peer.closeAfterWrite = true;
      }
    }
    protocol_.writeTo(peer);
    if (peer.discarding) mesh_.closeSocket(peer);
  }
}

}  // namespace mscclpp::detail
