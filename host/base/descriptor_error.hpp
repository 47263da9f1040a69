// When a call that creates a file descriptor can be retried later.
#pragma once

#include <cerrno>

namespace mscclpp::detail {

/// Whether creating a descriptor failed because the process or the system is out of descriptors or memory. A connection
/// that accept() did not take then stays in the queue.
inline bool isOutOfDescriptors(int errorNumber) {
  return errorNumber == EMFILE || errorNumber == ENFILE || errorNumber == ENOBUFS || errorNumber == ENOMEM;
}

}  // namespace mscclpp::detail
