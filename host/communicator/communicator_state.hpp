// The state of a communicator, shared with the futures that it returns.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "host/base/error_message.hpp"
#include "host/base/fork_safe_condition.hpp"
#include "host/base/process_identity.hpp"
#include "host/bootstrap/failure_state.hpp"
#include "host/memory/memory_transport.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp {

class Communicator::State {
 public:
  using RankAndTag = std::pair<int, int>;  ///< rank and tag
  using Bytes = std::vector<char>;

  /// The scope of calls of the bootstrap: either sees that the communicator is aborted, and throws Error(Aborted), or
  /// is seen by abort(), which then ends the calls in it.
  class BootstrapCall {
   public:
    explicit BootstrapCall(State& state) : activeBootstrapCalls_(state.activeBootstrapCalls_) {
      ++activeBootstrapCalls_;
      if (!state.failures_->isAborted()) return;
      --activeBootstrapCalls_;
      state.throwIfAborted();
    }
    ~BootstrapCall() { --activeBootstrapCalls_; }
    BootstrapCall(const BootstrapCall&) = delete;
    BootstrapCall& operator=(const BootstrapCall&) = delete;

   private:
    std::atomic<int>& activeBootstrapCalls_;
  };

  State(std::shared_ptr<Bootstrap> bootstrap, std::shared_ptr<Context> context);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::shared_ptr<Bootstrap>& bootstrap() const noexcept { return bootstrap_; }
  const std::shared_ptr<Context>& context() const noexcept { return context_; }

  void send(const Bytes& bytes, int rank, int tag);
  /// Keeps a sent registration alive for as long as its receiver may wait for it, or until the communicator is
  /// destroyed.
  void retain(RegisteredMemory memory);

  /// A deferred future of what `finish` makes of the next message of (rank, tag); it first completes the earlier ones
  /// of the same rank and tag.
  template <class Finish>
  static auto receive(const std::shared_ptr<State>& state, int rank, int tag, Finish finish)
      -> std::shared_future<std::invoke_result_t<Finish&, const Bytes&>>;
  /// Drops this object's references to futures that were never waited for: these own the state. In a forked
  /// child it drops those that no other thread of the parent was changing at the fork.
  void releaseFutures();

  /// Runs a call that contacts peers outside the bootstrap, with a deadline that abort() brings forward: it then throws
  /// Error(Aborted).
  template <class Call>
  auto callPeers(const Call& call) const {
    try {
      return call(detail::peerReplyDeadline().orWhenCancelled(failures_->abortEvent()));
    } catch (const BaseError&) {
      throwIfAborted();
      throw;
    }
  }
  /// The same for one peer: `prefix` and the rank are prepended to the message of an Error other than that of abort().
  template <class Call>
  auto callPeer(const std::string& prefix, int rank, const Call& call) const {
    try {
      return callPeers(call);
    } catch (const detail::NotShareableError& error) {
      throwIfAborted();
      throw detail::NotShareableError(prefix + std::to_string(rank) + ": " + detail::messageOf(error));
    } catch (const Error& error) {
      throwIfAborted();
      throw Error(prefix + std::to_string(rank) + ": " + detail::messageOf(error), error.getErrorCode());
    }
  }

  void recordConnection(const Connection& connection, int rank, int tag);
  RankAndTag rankAndTagOf(const Connection& connection) const;

  std::shared_ptr<WaitMonitor> monitor(DeviceType where);
  std::chrono::nanoseconds waitTimeout() const noexcept { return waitTimeout_; }
  void setWaitTimeout(std::chrono::nanoseconds timeout) noexcept { waitTimeout_ = timeout; }
  const std::shared_ptr<detail::FailureState>& failures() const noexcept { return failures_; }
  void abort() noexcept;

 private:
  class PendingReceive;
  template <class Finish>
  class TypedReceive;
  struct ReceiveQueue;

  std::unique_lock<std::mutex> lockForRelease(std::mutex& mutex) const;
  void throwIfAborted() const;
  void checkRankAndTag(int rank, int tag) const;
  ReceiveQueue& queueOf(const RankAndTag& rankAndTag);
  /// Completes the receives of the queue, in order, up to and including `receive`.
  void complete(ReceiveQueue& queue, const RankAndTag& rankAndTag, const PendingReceive& receive);
  Bytes receiveNow(int rank, int tag);
  Bytes receiveFromSelf(int tag);

  const detail::OwnerProcess owner_;
  std::shared_ptr<Bootstrap> bootstrap_;
  std::shared_ptr<Context> context_;

  mutable std::mutex mutex_;
  std::map<RankAndTag, std::unique_ptr<ReceiveQueue>> receiveQueues_;  // never removed: receives refer to them
  std::map<std::weak_ptr<detail::ConnectionBase>, RankAndTag, std::owner_less<>> connections_;

  std::deque<std::pair<std::chrono::steady_clock::time_point, RegisteredMemory>> retainedMemories_;  // time of sending

  std::map<DeviceType, std::shared_ptr<WaitMonitor>> monitors_;
  std::chrono::nanoseconds waitTimeout_ = env()->waitTimeout;

  // Messages of this rank to itself, by tag.
  std::mutex selfMutex_;
  detail::ForkSafeCondition selfArrived_;
  std::map<int, std::deque<Bytes>> selfMessages_;

  // Ends the waits of the monitors and connections, on abort() and on failures that the bootstrap detects.
  const std::shared_ptr<detail::FailureState> failures_ = std::make_shared<detail::FailureState>();
  std::atomic<int> activeBootstrapCalls_ = 0;
  FailureDetector* failureDetector_ = nullptr;
  FailureDetector::Subscription failureSubscription_ = 0;
  FailureDetector::Subscription laterFailureSubscription_ = 0;
  FailureDetector::Subscription departureSubscription_ = 0;
};

}  // namespace mscclpp
