// One connection to every other rank, served by one thread: messages by tag, heartbeats, farewells and bad news.
//
// The thread alone touches the sockets. Callers put frames into outboxes and take messages from a mailbox, both under
// one mutex, so no call ever blocks on the network itself, and two ranks that send to each other cannot deadlock.
//
// A connection that ends without a farewell means that its rank died. Whoever notices first tells the others before it
// wakes its own callers: even if those give up at once, the news that travels ahead of their farewell names the rank
// that failed first.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "deadline.hpp"
#include "mscclpp/host/liveness.hpp"
#include "unique_fd.hpp"

namespace mscclpp::detail {

class Mesh {
 public:
  /// One message of the greatest size is always taken.
  static constexpr std::size_t defaultInboxLimit = std::size_t{2} << 30;

  /// `heartbeatTimeout`: how long a peer may be silent; 0 = for ever. `inboxLimit`: a peer counts as failed when more
  /// bytes than this of its messages wait here to be received.
  Mesh(int rank, int numRanks, std::chrono::milliseconds heartbeatTimeout, std::size_t inboxLimit = defaultInboxLimit);
  /// Sends a farewell to all peers, gives them a moment to take it, and joins the thread.
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  /// Before the first addPeer.
  void setHeartbeatTimeout(std::chrono::milliseconds timeout);

  /// Hands over an authenticated connection. The first one starts the thread.
  void addPeer(int rank, UniqueFd socket);

  /// Makes this rank the failed one: the peers learn why, and all calls here throw.
  void fail(const std::string& reason);

  /// Ends the calls that are blocked now with Error(Aborted), and all later ones; the peers learn of it.
  void abort() noexcept;
  /// The same if there are any such calls, which it returns; if not, nothing happens.
  bool abortBlocked() noexcept;

  /// Returns when the message is in the outbox; blocks only while the outbox is full. `operation` names the caller in
  /// errors. Sending to oneself is allowed.
  void send(int peer, int tag, const void* data, std::size_t size, const char* operation, Deadline deadline);
  /// Takes the next message of (peer, tag), whose size must be `size`.
  void recv(int peer, int tag, void* data, std::size_t size, const char* operation, Deadline deadline);

  /// Throws if a failure is known.
  void check(const char* operation) const;

  std::optional<RankFailure> failure() const;
  Liveness::Subscription subscribe(Liveness::FailureCallback callback);
  void unsubscribe(Liveness::Subscription subscription) noexcept;

 private:
  using Bytes = std::vector<char>;
  enum class State { Absent, Alive, Departed, Lost };
  enum class Frame : std::uint32_t { Message = 1, Heartbeat, Farewell, Failure };
  struct Header;
  struct Peer;

  // Callers, with the mutex held.
  void enqueue(Peer& peer, Frame frame, int tag, const void* data, std::size_t size);
  bool isBroken() const { return failure_.has_value() || aborted_; }
  void tellAborted() noexcept;
  template <class Ready>
  bool waitUntil(std::unique_lock<std::mutex>& lock, Deadline deadline, const Ready& ready);
  std::string describe(const char* operation, int peer, int tag) const;
  /// Of a call that began at `start`, if it has waited.
  [[noreturn]] void throwFailure(const std::string& description,
                                 std::optional<Deadline::Clock::time_point> start) const;
  void wake() noexcept;

  // The thread.
  void run() noexcept;
  void serve();
  void readFrom(Peer& peer);
  void writeTo(Peer& peer);
  void beat();
  void startLeaving();
  bool handle(Peer& peer);
  bool hasRoomFor(const Peer& peer) const;
  void lose(Peer& peer, const std::string& reason);
  void announce(RankFailure failure);
  void runCallbacks(const RankFailure& failure);

  const int rank_;
  std::chrono::milliseconds heartbeatTimeout_;
  const std::size_t inboxLimit_;
  const pid_t owner_;
  UniqueFd wakeup_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Peer> peers_;
  std::map<std::pair<int, int>, std::deque<Bytes>> mailbox_;
  std::optional<RankFailure> failure_;
  int blocked_ = 0;          // calls that wait
  bool aborted_ = false;     // by this rank, while a call waited
  bool announcing_ = false;  // the first failure is on its way to the peers
  bool leaving_ = false;

  // Held while callbacks run, so that unsubscribe can wait for them.
  std::mutex callbackMutex_;
  std::map<Liveness::Subscription, Liveness::FailureCallback> callbacks_;
  Liveness::Subscription nextSubscription_ = 1;
  bool callbacksRan_ = false;

  std::thread thread_;
  // The thread's own.
  bool left_ = false;        // the farewells are on their way
  bool progressed_ = false;  // something was written since it last looked
};

}  // namespace mscclpp::detail
