// The ranks that have left a context: some of the ranks of a bootstrap, which share its connections with others. A rank
// leaves a context without leaving the job.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "host/base/process_identity.hpp"

namespace mscclpp::detail {

/// Any thread may call any function. Callbacks run one at a time, after hasLeft() gives the new state.
class ContextDepartures {
 public:
  using Callback = std::function<void(int rank)>;
  using Subscription = unsigned long;

  /// A rank leaves a context, for ever.
  void leave(int context, int rank);
  bool hasLeft(int context, int rank) const;
  /// This rank has no more use for a context: what was kept for it is released, and later departures are not kept.
  void close(int context) noexcept;

  /// The callback runs for each rank that leaves; at once for those that have left. It must not block.
  Subscription subscribe(int context, Callback callback);
  /// When it returns the callback is not running and will not run again.
  void unsubscribe(Subscription subscription) noexcept;

 private:
  const OwnerProcess owner_;
  // Held while callbacks run, so that unsubscribe waits for them; taken before mutex_. Recursive, since a callback may
  // remove itself.
  std::recursive_mutex callbackMutex_;
  std::map<Subscription, std::pair<int, std::shared_ptr<const Callback>>> callbacks_;
  Subscription nextSubscription_ = 1;

  mutable std::mutex mutex_;
  std::map<int, std::set<int>> left_;  // ranks by context
  std::set<int> closed_;               // contexts
};

}  // namespace mscclpp::detail
