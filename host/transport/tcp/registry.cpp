#include "host/transport/tcp/registry.hpp"

namespace mscclpp::detail::tcp {

Registration::Guard Registration::acquire(const std::shared_ptr<Registration>& registration) {
  std::lock_guard lock(registration->mutex_);
  if (registration->deregistered_) return Guard();
  ++registration->users_;
  return Guard(registration);
}

void Registration::release() noexcept {
  if (!owner_.isCurrent()) return;  // the lock may have been held at the fork
  std::lock_guard lock(mutex_);
  if (--users_ == 0 && deregistered_) idle_->notify_all();
}

void Registration::deregister() noexcept {
  std::unique_lock lock(mutex_);
  deregistered_ = true;
  idle_->wait(lock, [this] { return users_ == 0; });
}

Id128 Registry::add(std::shared_ptr<Registration> registration) {
  const Id128 name = randomId();
  std::lock_guard lock(mutex_);
  byId_.emplace(name, std::move(registration));
  return name;
}

void Registry::remove(const Id128& name) noexcept {
  std::shared_ptr<Registration> registration;
  {
    std::lock_guard lock(mutex_);
    const auto found = byId_.find(name);
    if (found == byId_.end()) return;
    registration = std::move(found->second);
    byId_.erase(found);
  }
  registration->deregister();
}

std::shared_ptr<Registration> Registry::find(const Id128& name) const {
  std::lock_guard lock(mutex_);
  const auto found = byId_.find(name);
  return found == byId_.end() ? nullptr : found->second;
}

}  // namespace mscclpp::detail::tcp
