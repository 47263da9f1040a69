#include "host/bootstrap/context_departures.hpp"

#include <new>
#include <vector>

namespace mscclpp::detail {

void ContextDepartures::leave(int context, int rank) {
  const std::lock_guard callbackLock(callbackMutex_);
  {
    const std::lock_guard lock(mutex_);
    if (closed_.contains(context) || !left_[context].insert(rank).second) return;
  }
  std::vector<std::shared_ptr<const Callback>> called;
  for (const auto& [subscription, entry] : callbacks_) {
    if (entry.first == context) called.push_back(entry.second);
  }
  for (const auto& callback : called) (*callback)(rank);
}

bool ContextDepartures::hasLeft(int context, int rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = left_.find(context);
  return found != left_.end() && found->second.contains(rank);
}

void ContextDepartures::close(int context) noexcept {
  if (!owner_.isCurrent()) return;  // as in unsubscribe
  const std::lock_guard lock(mutex_);
  left_.erase(context);
  try {
    closed_.insert(context);
  } catch (const std::bad_alloc&) {  // later departures are kept
  }
}

ContextDepartures::Subscription ContextDepartures::subscribe(int context, Callback callback) {
  const std::lock_guard callbackLock(callbackMutex_);
  std::set<int> earlier;
  {
    const std::lock_guard lock(mutex_);
    closed_.erase(context);
    if (const auto found = left_.find(context); found != left_.end()) earlier = found->second;
  }
  for (const int rank : earlier) callback(rank);
  callbacks_.emplace(nextSubscription_, std::pair{context, std::make_shared<const Callback>(std::move(callback))});
  return nextSubscription_++;
}

void ContextDepartures::unsubscribe(Subscription subscription) noexcept {
  if (!owner_.isCurrent()) return;  // destructors call it, and the lock may have been held at the fork
  const std::lock_guard callbackLock(callbackMutex_);
  callbacks_.erase(subscription);
}

}  // namespace mscclpp::detail
