// A WaitControl and the host's state for it, shared by a monitor and its communicator.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "host/bootstrap/failure_state.hpp"
#include "mscclpp/basic/wait_record.hpp"
#include "mscclpp/host/base/device.hpp"

namespace mscclpp::detail {

class WaitMonitorState {
 public:
  /// `failures` ends the waits and holds the reason.
  WaitMonitorState(DeviceType where, std::shared_ptr<FailureState> failures);
  ~WaitMonitorState();
  WaitMonitorState(const WaitMonitorState&) = delete;
  WaitMonitorState& operator=(const WaitMonitorState&) = delete;

  WaitControl* control() const noexcept { return control_.get(); }
  /// Ends the waits of this monitor only.
  void abort(const std::string& reason = {}) noexcept;
  bool failed() const noexcept;
  void check() const;
  bool hasLeft(int rank) const noexcept { return failures_->hasLeft(rank); }

 private:
  std::string abortReason() const;

  const std::shared_ptr<WaitControl> control_;
  mutable std::mutex abortMutex_;
  std::string abortReason_;  // of the first abort; may be empty
  const std::shared_ptr<FailureState> failures_;
  FailureDetector::Subscription failureSubscription_;
  FailureDetector::Subscription departureSubscription_;
};

}  // namespace mscclpp::detail
