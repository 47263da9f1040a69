#include "host/bootstrap/process_watch.hpp"

#include <sys/syscall.h>
#include <unistd.h>

namespace mscclpp::detail {

UniqueFd watchProcess(const ProcessIdentity& process) {
  const ProcessIdentity self = ProcessIdentity::of(::getpid());
  if (self.pid == 0 || process == self) return {};
  if (process.boot != self.boot || process.pidNamespace != self.pidNamespace || process.pid <= 0) return {};
#ifdef SYS_pidfd_open
  const auto pid = static_cast<pid_t>(process.pid);
  UniqueFd descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  // Compared after the descriptor is open: from then on the pid cannot be reused unnoticed.
  if (descriptor && ProcessIdentity::of(pid) == process) return descriptor;
#endif
  return {};
}

}  // namespace mscclpp::detail
