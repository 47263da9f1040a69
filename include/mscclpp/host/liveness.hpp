// How a component learns that another rank died: the part of a bootstrap that watches its peers.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace mscclpp {

/// The first rank that was lost, and how that was noticed.
struct RankFailure {
  int rank;
  std::string reason;
};

/// Implemented by a bootstrap that watches its peers (`dynamic_cast<Liveness*>(&bootstrap)`, null where it does not).
/// All functions may be called by any thread.
class Liveness {
 public:
  /// Runs once, on the watcher's thread, when the first failure is noticed; at once on the caller's thread if that
  /// has happened already. It must not block and must not throw.
  using FailureCallback = std::function<void(const RankFailure&)>;
  using Subscription = unsigned long;

  virtual ~Liveness() = default;

  /// The first rank that failed, or nothing while all are alive or left in an orderly way.
  virtual std::optional<RankFailure> failure() const = 0;

  /// Adds a callback; it is kept until `unsubscribe`.
  virtual Subscription onFailure(FailureCallback callback) = 0;

  /// Removes a callback; when this returns the callback is not running and will not run again. Must not be called
  /// from inside a callback.
  virtual void unsubscribe(Subscription subscription) noexcept = 0;

  /// The rank that failed first, or nothing.
  std::optional<int> failedRank() const {
    auto first = failure();
    return first ? std::optional<int>(first->rank) : std::nullopt;
  }
};

}  // namespace mscclpp
