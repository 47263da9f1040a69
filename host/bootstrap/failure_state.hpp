// The state of failures: the first failed rank, later ones, an abort of this rank, and the ranks that left in order.
// All code that waits for peers shares one object of this class, or subscribes to it.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "host/base/event.hpp"
#include "host/base/process_identity.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/failure_detector.hpp"

namespace mscclpp::detail {

/// Any thread may call any function. The callbacks of one object run one at a time, after the new state is visible
/// through every other function.
class FailureState final : public FailureDetector {
 public:
  /// Returns whether this was the first failure; a later one is recorded as by failLater.
  bool fail(const RankFailure& failure) noexcept;
  /// The rank failed after another, whose failure has been reported or is about to be. Only waits for that rank end.
  void failLater(const RankFailure& failure) noexcept;
  /// This rank ends the communication itself. Recorded as its failure, unless another came first.
  void abort(const RankFailure& ownFailure) noexcept;
  /// The rank has left the job in order, which is no failure: only waits for that rank end.
  void leave(int rank);

  /// Whether there was a failure or an abort. Cheap enough for a polling loop, like the four below.
  bool hasFailed() const noexcept { return failedRank_.load(std::memory_order_acquire) != noRank; }
  bool hasFailed(int rank) const noexcept;
  bool hasLeft(int rank) const noexcept;
  bool isAborted() const noexcept { return aborted_.isSet(); }
  /// For a deadline that an abort brings forward.
  const Event& abortEvent() const noexcept { return aborted_; }

  /// The failure of that rank, first or later.
  std::optional<RankFailure> failureOf(int rank) const;
  std::vector<int> leftRanks() const;

  /// The code for errors caused by the first failure: Aborted if that is an abort of this rank, otherwise RemoteError.
  ErrorCode errorCode() const noexcept;

  std::optional<RankFailure> failure() const override;
  Subscription onFailure(FailureCallback callback) override;
  Subscription onLaterFailure(FailureCallback callback) override;
  Subscription onDeparture(DepartureCallback callback) override;
  void unsubscribe(Subscription subscription) noexcept override;

 private:
  static constexpr int noRank = -1;

  enum class Cause { Failure, Abort };
  // Shared, so that a callback may remove itself while it runs.
  template <class Callback>
  using Callbacks = std::map<Subscription, std::shared_ptr<const Callback>>;

  bool setFirstFailure(const RankFailure& failure, Cause cause) noexcept;
  /// Records the first failure and runs its callbacks. Returns false if there was one before.
  bool reportFirst(const RankFailure& failure, Cause cause) noexcept;
  /// With callbackMutex_ held, like `add`.
  template <class Callback, class Argument>
  void runCallbacks(const Callbacks<Callback>& callbacks, const Argument& argument) const noexcept;
  template <class Callback>
  Subscription add(Callbacks<Callback>& callbacks, std::shared_ptr<const Callback> callback);

  mutable std::mutex mutex_;
  std::optional<RankFailure> failure_;
  bool failedByAbort_ = false;
  std::map<int, std::string> laterFailures_;  // reasons by rank
  std::set<int> left_;
  // So that the functions that poll seldom lock the mutex.
  std::atomic<bool> anyLaterFailure_ = false;
  std::atomic<bool> anyLeft_ = false;
  std::atomic<int> failedRank_ = noRank;  // failure_->rank
  Event aborted_;
  const OwnerProcess owner_;

  // Held while callbacks run, so that unsubscribe can wait for them; taken before mutex_.
  // Recursive, since a callback may abort, or report a failure, which runs callbacks too, and add or remove callbacks.
  std::recursive_mutex callbackMutex_;
  Callbacks<FailureCallback> failureCallbacks_;
  Callbacks<FailureCallback> laterFailureCallbacks_;
  Callbacks<DepartureCallback> departureCallbacks_;
  Subscription nextSubscription_ = 1;
  // What callbacks have been told; a new one is told the same.
  bool failureReported_ = false;
  std::map<int, RankFailure> laterFailuresReported_;
  std::set<int> departuresReported_;
};

/// "rank 2 failed: its process ended".
std::string describe(const RankFailure& failure);
/// "rank 2 has left the job".
std::string describeDeparture(int rank);

}  // namespace mscclpp::detail
