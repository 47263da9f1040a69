#include "registry.hpp"

namespace mscclpp::detail::tcp {

Registration::Lease Registration::lease(const std::shared_ptr<Registration>& registration) {
  std::lock_guard lock(registration->mutex_);
  if (registration->withdrawn_) return Lease();
  ++registration->leases_;
  return Lease(registration);
}

void Registration::release() noexcept {
  std::lock_guard lock(mutex_);
  if (--leases_ == 0 && withdrawn_) idle_.notify_all();
}

void Registration::withdraw() noexcept {
  std::unique_lock lock(mutex_);
  withdrawn_ = true;
  idle_.wait(lock, [this] { return leases_ == 0; });
}

Id128 Registry::add(std::shared_ptr<Registration> registration) {
  const Id128 name = randomId();
  std::lock_guard lock(mutex_);
  byName_.emplace(name, std::move(registration));
  return name;
}

void Registry::remove(const Id128& name) noexcept {
  std::shared_ptr<Registration> registration;
  {
    std::lock_guard lock(mutex_);
    const auto found = byName_.find(name);
    if (found == byName_.end()) return;
    registration = std::move(found->second);
    byName_.erase(found);
  }
  registration->withdraw();
}

std::shared_ptr<Registration> Registry::find(const Id128& name) const {
  std::lock_guard lock(mutex_);
  const auto found = byName_.find(name);
  return found == byName_.end() ? nullptr : found->second;
}

}  // namespace mscclpp::detail::tcp
