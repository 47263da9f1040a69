// How the host aborts the waits of running kernels, and learns why a wait ended.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "mscclpp/basic/wait_record.hpp"
#include "mscclpp/host/base/device.hpp"

namespace mscclpp {

class Communicator;
namespace detail {
class FailureState;
class WaitMonitorState;
}  // namespace detail

/// Owns one WaitControl, in memory that the device can access. All waits with the same control end together: a failed
/// monitor stays failed, and what it watched must be set up anew.
class WaitMonitor {
 public:
  /// A standalone monitor. Throws Error(InvalidUsage) unless `where` is CPU or GPU.
  explicit WaitMonitor(DeviceType where);
  /// A monitor that also fails on communicator.abort(), and on the failure of a rank if the bootstrap detects failures.
  /// An orderly departure of a rank ends only the waits for that rank.
  WaitMonitor(Communicator& communicator, DeviceType where);
  /// `given`, or if it is null a monitor for collectives on a team of all ranks of the communicator (setTeamIsJob).
  static std::shared_ptr<WaitMonitor> ofTeam(Communicator& communicator, DeviceType where,
                                             std::shared_ptr<WaitMonitor> given = nullptr);
  /// The control must no longer be in use.
  ~WaitMonitor();
  WaitMonitor(const WaitMonitor&) = delete;
  WaitMonitor& operator=(const WaitMonitor&) = delete;

  /// For the wait policy of a kernel: an address that the device can use. Initially zero-filled.
  WaitControl* deviceControl() const noexcept;

  /// The timeout for such waits: that of the communicator (Communicator::setWaitTimeout) when the monitor was made;
  /// MSCCLPP_WAIT_TIMEOUT without one.
  std::chrono::nanoseconds timeout() const noexcept { return timeout_; }

  /// Ends all waits soon. Any thread may call it. check() gives the reason of the first abort, unless it is empty.
  void abort(const std::string& reason = {}) noexcept;

  /// Whether a wait has failed, abort was called, or a rank has failed. Cheap; any thread may call it.
  bool failed() const noexcept;

  /// Returns unless failed(), which is as cheap. Otherwise throws: Error(RemoteError), naming the rank that failed, or
  /// the one that left while it was waited for; Error(Timeout) if a wait passed its deadline; Error(InvalidUsage) if a
  /// checked call of a collective was wrong (collective/call_check.hpp); Error(Aborted) otherwise. The message gives
  /// the operation, the waiting rank and the rank it waited for, the duration, and the expected and actual values.
  void check() const;

  /// States that the collectives which wait with this monitor run on a team of all ranks of the communicator, in order:
  /// then a rank that leaves ends their waits for it, too. Without it only waits for semaphores end so, since a
  /// collective knows the ranks of its team alone. Called before the first wait.
  void setTeamIsJob() noexcept;

  /// Whether `rank` has left the job in order. What it sent before has arrived in mapped memory.
  bool hasLeft(int rank) const noexcept;

 private:
  friend class Communicator;
  WaitMonitor(DeviceType where, const std::shared_ptr<detail::FailureState>& failures,
              std::chrono::nanoseconds timeout);
  std::shared_ptr<detail::WaitMonitorState> state_;
  std::chrono::nanoseconds timeout_;
};

}  // namespace mscclpp
