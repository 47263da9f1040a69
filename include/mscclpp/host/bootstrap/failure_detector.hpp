// How a component is notified that another rank failed: the part of a bootstrap that monitors its peers.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace mscclpp {

/// A rank that failed, and how the failure was detected.
struct RankFailure {
  int rank;
  std::string reason;
};

/// Implemented by a bootstrap that monitors its peers (`dynamic_cast<FailureDetector*>(&bootstrap)`, null if it does
/// not). Any thread may call any function.
class FailureDetector {
 public:
  /// Runs once, on the detector's thread, when the first failure is detected; at once on the caller's thread if that
  /// has happened already. It must not block, nor wait for another thread that calls this object; it may abort the
  /// bootstrap or the communicator, and add and remove callbacks. Its exceptions are logged and otherwise ignored.
  using FailureCallback = std::function<void(const RankFailure&)>;
  /// Runs once for each rank that has left the job in order, under the same rules; 250 ms after that was noticed, so
  /// that a failure which made the rank leave is reported first.
  using DepartureCallback = std::function<void(int rank)>;
  using Subscription = unsigned long;

  virtual ~FailureDetector() = default;

  /// The first rank that failed; empty while all are running or have left in order.
  virtual std::optional<RankFailure> failure() const = 0;

  /// Adds a callback; it is kept until `unsubscribe`. Throws Error(InvalidUsage) if it is null, as the two below do.
  virtual Subscription onFailure(FailureCallback callback) = 0;

  /// Adds a callback for ranks that fail after the first one: it runs once for each, under the same rules. These are as
  /// this rank detects them; other ranks may detect them in another order. It is kept until `unsubscribe`. A detector
  /// that does not override this reports the first failure only.
  virtual Subscription onLaterFailure(FailureCallback /*callback*/) { return 0; }

  /// Adds a callback for ranks that leave the job in order: their bootstrap is destroyed, at the end of the program or
  /// by an exception. That is no failure, but anything that still waits for such a rank would wait forever. It is kept
  /// until `unsubscribe`. A detector that does not override this does not detect departures.
  virtual Subscription onDeparture(DepartureCallback /*callback*/) { return 0; }

  /// Removes a callback; when this returns the callback is not running and will not run again. A callback may remove
  /// itself, and then completes its run.
  virtual void unsubscribe(Subscription subscription) noexcept = 0;

  /// The rank that failed first, if any.
  std::optional<int> failedRank() const {
    auto first = failure();
    return first ? std::optional<int>(first->rank) : std::nullopt;
  }
};

}  // namespace mscclpp
