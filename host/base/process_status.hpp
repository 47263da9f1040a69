// What the kernel reports about a process in /proc/PID/stat.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace mscclpp::detail {

struct ProcessStatus {
  char state;  ///< 'R': running, 'S': waiting, ...: see proc(5)
  pid_t parent;
  pid_t session;
  int threads;
  std::uint64_t startTime;  ///< in clock ticks since boot
};

/// Empty if there is no such process, or /proc is not readable.
std::optional<ProcessStatus> statusOf(pid_t pid);

}  // namespace mscclpp::detail
