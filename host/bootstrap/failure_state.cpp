#include "host/bootstrap/failure_state.hpp"

#include <exception>
#include <new>
#include <utility>

#include "mscclpp/host/base/logger.hpp"

namespace mscclpp::detail {

namespace {

// A callback is application code: its exceptions must not end the thread that detected the failure.
template <class Callback, class Argument>
void runCallback(const Callback& callback, const Argument& argument) noexcept {
  try {
    callback(argument);
  } catch (const std::exception& error) {
    logMessage(LogLevel::Error, LogSubsystem::Net, "a failure callback threw: ", error.what());
  } catch (...) {
    logMessage(LogLevel::Error, LogSubsystem::Net, "a failure callback threw something that is not a std::exception");
  }
}

template <class Callback>
std::shared_ptr<const Callback> shared(Callback callback) {
  if (!callback) throw Error("FailureDetector: the callback must not be null", ErrorCode::InvalidUsage);
  return std::make_shared<const Callback>(std::move(callback));
}

}  // namespace

template <class Callback, class Argument>
void FailureState::runCallbacks(const Callbacks<Callback>& callbacks, const Argument& argument) const noexcept {
  // One that is added meanwhile is told when it is added.
  const Subscription end = nextSubscription_;
  for (auto next = callbacks.begin(); next != callbacks.end() && next->first < end;) {
    const auto [subscription, callback] = *next;
    runCallback(*callback, argument);
    next = callbacks.upper_bound(subscription);  // the callback may have removed any of them
  }
}

template <class Callback>
FailureDetector::Subscription FailureState::add(Callbacks<Callback>& callbacks,
                                                std::shared_ptr<const Callback> callback) {
  callbacks.emplace(nextSubscription_, std::move(callback));
  return nextSubscription_++;
}

bool FailureState::setFirstFailure(const RankFailure& failure, Cause cause) noexcept {
  std::lock_guard lock(mutex_);
  if (failure_) return false;
  try {
    failure_ = failure;
  } catch (...) {  // out of memory for the reason: the rank is enough
    failure_ = RankFailure{failure.rank, {}};
  }
  failedByAbort_ = cause == Cause::Abort;
  failedRank_.store(failure.rank, std::memory_order_release);
  return true;
}

bool FailureState::reportFirst(const RankFailure& failure, Cause cause) noexcept {
  const bool isFirst = setFirstFailure(failure, cause);
  if (cause == Cause::Abort) aborted_.set();
  if (!isFirst) return false;
  std::lock_guard lock(callbackMutex_);
  failureReported_ = true;
  runCallbacks(failureCallbacks_, failure);
  return true;
}

bool FailureState::fail(const RankFailure& failure) noexcept {
  if (reportFirst(failure, Cause::Failure)) return true;
  failLater(failure);
  return false;
}

void FailureState::abort(const RankFailure& ownFailure) noexcept {
  reportFirst(ownFailure, Cause::Abort);
}

void FailureState::failLater(const RankFailure& failure) noexcept {
  try {
    {
      std::lock_guard lock(mutex_);
      if (failure_ && failure_->rank == failure.rank) return;
      if (!laterFailures_.emplace(failure.rank, failure.reason).second) return;
      anyLaterFailure_.store(true, std::memory_order_release);
    }
    std::lock_guard lock(callbackMutex_);
    laterFailuresReported_.emplace(failure.rank, failure);
    runCallbacks(laterFailureCallbacks_, failure);
  } catch (const std::bad_alloc&) {  // the first failure has been reported; this adds a detail
  }
}

void FailureState::leave(int rank) {
  {
    std::lock_guard lock(mutex_);
    if (!left_.insert(rank).second) return;
    anyLeft_.store(true, std::memory_order_release);
  }
  std::lock_guard lock(callbackMutex_);
  departuresReported_.insert(rank);
  runCallbacks(departureCallbacks_, rank);
}

bool FailureState::hasFailed(int rank) const noexcept {
  if (failedRank_.load(std::memory_order_acquire) == rank) return true;
  if (!anyLaterFailure_.load(std::memory_order_acquire)) return false;
  std::lock_guard lock(mutex_);
  return laterFailures_.count(rank) != 0;
}

bool FailureState::hasLeft(int rank) const noexcept {
  if (!anyLeft_.load(std::memory_order_acquire)) return false;
  std::lock_guard lock(mutex_);
  return left_.count(rank) != 0;
}

std::vector<int> FailureState::leftRanks() const {
  std::lock_guard lock(mutex_);
  return {left_.begin(), left_.end()};
}

ErrorCode FailureState::errorCode() const noexcept {
  std::lock_guard lock(mutex_);
  return failedByAbort_ ? ErrorCode::Aborted : ErrorCode::RemoteError;
}

std::optional<RankFailure> FailureState::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<RankFailure> FailureState::failureOf(int rank) const {
  std::lock_guard lock(mutex_);
  if (failure_ && failure_->rank == rank) return failure_;
  const auto later = laterFailures_.find(rank);
  if (later == laterFailures_.end()) return std::nullopt;
  return RankFailure{rank, later->second};
}

FailureDetector::Subscription FailureState::onFailure(FailureCallback callback) {
  auto added = shared(std::move(callback));
  std::lock_guard lock(callbackMutex_);
  if (failureReported_) runCallback(*added, *failure());
  return add(failureCallbacks_, std::move(added));
}

FailureDetector::Subscription FailureState::onLaterFailure(FailureCallback callback) {
  auto added = shared(std::move(callback));
  std::lock_guard lock(callbackMutex_);
  for (const auto& [rank, failure] : laterFailuresReported_) runCallback(*added, failure);
  return add(laterFailureCallbacks_, std::move(added));
}

FailureDetector::Subscription FailureState::onDeparture(DepartureCallback callback) {
  auto added = shared(std::move(callback));
  std::lock_guard lock(callbackMutex_);
  for (const int rank : departuresReported_) runCallback(*added, rank);
  return add(departureCallbacks_, std::move(added));
}

void FailureState::unsubscribe(Subscription subscription) noexcept {
  if (!owner_.isCurrent()) return;  // destructors call it, and the lock may have been held at the fork
  std::lock_guard lock(callbackMutex_);
  failureCallbacks_.erase(subscription);
  laterFailureCallbacks_.erase(subscription);
  departureCallbacks_.erase(subscription);
}

std::string describe(const RankFailure& failure) {
  const std::string reason = failure.reason.empty() ? "" : ": " + failure.reason;
  return "rank " + std::to_string(failure.rank) + " failed" + reason;
}

std::string describeDeparture(int rank) {
  return "rank " + std::to_string(rank) + " has left the job";
}

}  // namespace mscclpp::detail
