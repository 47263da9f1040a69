// The clock of the device that a trace records on, converted to the host's time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "host/trace/clock_map.hpp"
#include "mscclpp/basic/clock_sync.hpp"

namespace mscclpp::detail {

/// Any thread may call any function; comparisons take place one at a time.
class DeviceClock {
 public:
  /// The device's clock is the host's.
  DeviceClock() = default;
  /// `memory`: of a ClockSync, for host and device. `launch` starts the responder on the device, and returns.
  DeviceClock(std::shared_ptr<void> memory, std::function<void(ClockSync* exchange)> launch);

  /// Compares the two clocks. Throws Error(Timeout) if the device does not respond.
  void compare();
  /// The map of the comparisons so far.
  ClockMap map() const;

 private:
  std::shared_ptr<void> memory_;
  std::function<void(ClockSync* exchange)> launch_;
  std::mutex exchangeMutex_;  // guards *memory_; taken before mapMutex_
  mutable std::mutex mapMutex_;
  ClockMap map_;
};

}  // namespace mscclpp::detail
