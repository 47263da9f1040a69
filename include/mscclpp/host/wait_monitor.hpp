// How the host ends the waits of running kernels, and learns why a wait ended.
#pragma once

#include <memory>

#include "mscclpp/basic/wait_record.hpp"
#include "mscclpp/host/device.hpp"

namespace mscclpp {

class Communicator;
namespace detail {
class WaitWatch;
}

/// Owns one WaitControl, in memory that the device can reach. Everything that waits with the same control is given up
/// together: a failed monitor stays failed, and what it watched is to be set up anew.
class WaitMonitor {
 public:
  /// A monitor of its own. Throws Error(InvalidUsage) unless `where` is CPU or GPU.
  explicit WaitMonitor(DeviceType where);
  /// One that communicator.abort() ends too, and the loss of a rank where the bootstrap notices that.
  WaitMonitor(Communicator& communicator, DeviceType where);
  /// The control must not be in use any more.
  ~WaitMonitor();
  WaitMonitor(const WaitMonitor&) = delete;
  WaitMonitor& operator=(const WaitMonitor&) = delete;

  /// For the wait policy of a kernel, as an address that the device can use. Zero-filled at first.
  WaitControl* deviceControl() const noexcept;

  /// Ends all waits soon. Any thread.
  void abort() noexcept;

  /// Whether a wait has failed, abort was called, or a rank was lost. Cheap; any thread.
  bool failed() const noexcept;

  /// Returns if all is well. Else throws: Error(RemoteError) that names the lost rank if one is known, Error(Timeout)
  /// if a wait passed its deadline, Error(Aborted) otherwise. The text says what was waited for, by whom, how long,
  /// and what was seen.
  void check() const;

 private:
  friend class Communicator;
  std::shared_ptr<detail::WaitWatch> watch_;
};

}  // namespace mscclpp
