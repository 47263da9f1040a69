// Detects at once that a process of this host has ended, even if a child that it forked keeps its sockets open.
#pragma once

#include "host/base/process_identity.hpp"
#include "host/base/unique_fd.hpp"

namespace mscclpp::detail {

/// A descriptor that becomes readable when the process ends. Empty if it cannot be watched from here: it is this
/// process itself, is on another host or in another pid namespace, has ended already, or the kernel has no pidfd_open.
UniqueFd watchProcess(const ProcessIdentity& process);

}  // namespace mscclpp::detail
