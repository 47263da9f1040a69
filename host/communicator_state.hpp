// What a communicator owns, shared with the futures that it gives out.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
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

#include "error_message.hpp"
#include "memory_transport.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/liveness.hpp"
#include "wait_watch.hpp"

namespace mscclpp {

class Communicator::State {
 public:
  using Channel = std::pair<int, int>;  ///< rank and tag
  using Bytes = std::vector<char>;

  State(std::shared_ptr<Bootstrap> bootstrap, std::shared_ptr<Context> context);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::shared_ptr<Bootstrap>& bootstrap() const noexcept { return bootstrap_; }
  const std::shared_ptr<Context>& context() const noexcept { return context_; }

  void send(const Bytes& bytes, int rank, int tag);
  /// Keeps a registration that was sent for as long as its receiver may wait for it, or until the communicator ends.
  void keep(RegisteredMemory memory);

  /// What `finish` makes of the next message of (rank, tag): a deferred future, which first completes those of the same line before it.
  template <class Finish>
  static auto receive(const std::shared_ptr<State>& state, int rank, int tag, Finish finish)
      -> std::shared_future<std::invoke_result_t<Finish&, Bytes>>;
  /// Futures that nobody has asked hold the state; this lets go of them.
  void forgetFutures();

  /// What asks a peer beside the bootstrap, given a deadline that abort() brings forward: it then throws Error(Aborted).
  /// Other errors say `prefix` and the rank first.
  template <class Call>
  auto ask(const std::string& prefix, int rank, const Call& call) const {
    try {
      return call(detail::answerDeadline().orWhen(aborted_));
    } catch (const Error& error) {
      refuseIfAborted();
      throw Error(prefix + std::to_string(rank) + ": " + detail::messageOf(error), error.getErrorCode());
    } catch (const BaseError&) {
      refuseIfAborted();
      throw;
    }
  }

  void remember(const Connection& connection, int rank, int tag);
  Channel channelOf(const Connection& connection) const;

  std::shared_ptr<WaitMonitor> monitor(DeviceType where);
  void watch(const std::shared_ptr<detail::WaitWatch>& watch);
  void abort() noexcept;

 private:
  class Receive;
  struct Line;
  class BootstrapCall;

  void refuseIfAborted() const;
  void checkChannel(int rank, int tag) const;
  void onFailure(const RankFailure& failure) noexcept;
  Line& lineOf(int rank, int tag);
  /// Receives for every place in the line up to this one; returns its message.
  Bytes complete(Receive& receive);
  Bytes receiveNow(int rank, int tag);
  Bytes takeFromSelf(int tag);

  std::shared_ptr<Bootstrap> bootstrap_;
  std::shared_ptr<Context> context_;

  mutable std::mutex mutex_;
  std::map<Channel, std::unique_ptr<Line>> lines_;  // never removed: receives refer to them
  std::map<std::weak_ptr<detail::ConnectionBase>, Channel, std::owner_less<>> connections_;

  std::deque<std::pair<std::chrono::steady_clock::time_point, RegisteredMemory>> sent_;  // with when it was

  std::map<DeviceType, std::shared_ptr<WaitMonitor>> monitors_;

  // What this rank sent to itself, by tag.
  std::mutex selfMutex_;
  std::condition_variable selfArrived_;
  std::map<int, std::deque<Bytes>> self_;

  // Whose waits end when this communicator is aborted or a rank is lost.
  std::mutex watchMutex_;  // may be taken while mutex_ is held, not the other way about
  std::vector<std::weak_ptr<detail::WaitWatch>> watches_;
  std::atomic<bool> aborted_ = false;
  std::atomic<int> calls_ = 0;  // of the bootstrap, under way
  std::optional<RankFailure> failure_;
  Liveness* liveness_ = nullptr;
  Liveness::Subscription subscription_ = 0;
};

}  // namespace mscclpp
