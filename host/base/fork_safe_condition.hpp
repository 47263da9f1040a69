// A condition variable that a forked child can destroy.
#pragma once

#include <condition_variable>
#include <memory>

#include "host/base/process_identity.hpp"

namespace mscclpp::detail {

/// A forked child has a copy of the variable, but not the threads that were waiting at the fork: its destructor would
/// wait for them for ever. So the child leaks its copy.
class ForkSafeCondition {
 public:
  ForkSafeCondition() = default;
  ~ForkSafeCondition() {
    if (!owner_.isCurrent()) static_cast<void>(condition_.release());
  }
  ForkSafeCondition(const ForkSafeCondition&) = delete;
  ForkSafeCondition& operator=(const ForkSafeCondition&) = delete;

  std::condition_variable* operator->() const noexcept { return condition_.get(); }

 private:
  const OwnerProcess owner_{};
  std::unique_ptr<std::condition_variable> condition_ = std::make_unique<std::condition_variable>();
};

}  // namespace mscclpp::detail
