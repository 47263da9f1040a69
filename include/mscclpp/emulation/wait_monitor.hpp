// The control block of the waits of emulated ranks; a wait that failed becomes an exception after the launch.
#pragma once

#include <stdexcept>

#include "mscclpp/basic/wait_error.hpp"
#include "mscclpp/basic/wait_record.hpp"

namespace mscclpp::emulation {

/// Thrown after a launch in which a wait failed. What its record says.
class FailedWait : public std::runtime_error {
 public:
  explicit FailedWait(const WaitRecord& record) : std::runtime_error(sentenceOf(record)), record_(record) {}
  const WaitRecord& record() const noexcept { return record_; }

 private:
  WaitRecord record_;
};

/// What WaitMonitor of host/ is to kernels, for emulated ranks; one serves all of them. As there, a monitor whose waits
/// have failed stays failed.
class WaitMonitor {
 public:
  /// For BoundedWait.
  WaitControl* deviceControl() noexcept { return &control_; }

  /// To be called after launch() has returned. Throws FailedWait if a wait has failed, and InvalidCall if a checked
  /// call was wrong.
  void check() const {
    if (control_.record.state == 0) return;
    if (isInvalidCall(control_.record)) throw InvalidCall(control_.record);
    throw FailedWait(control_.record);
  }

 private:
  WaitControl control_{};
};

}  // namespace mscclpp::emulation
