// Unix-domain stream sockets in Linux's abstract namespace, between processes of one host, and the user of the peer.
#pragma once

#include <string>
#include <vector>

#include "host/base/deadline.hpp"
#include "host/base/unique_fd.hpp"

namespace mscclpp::detail {

/// Listens at the abstract name, which has no file and ends with the socket. Non-blocking. Throws SysError, with
/// EADDRINUSE if the name is taken.
UniqueFd listenLocal(const std::string& name);

/// Connects; while the listener's queue is full, retries until `deadline`. Empty on failure: `errorNumber` then has the
/// reason, EAGAIN at the deadline. Non-blocking.
UniqueFd connectLocal(const std::string& name, Deadline deadline, int& errorNumber);

/// The abstract names that begin with `prefix` and have a listener, of any user, in this network namespace.
std::vector<std::string> findListeners(const std::string& prefix);

/// Whether the process that connected, or that listened, has the effective user id of this one. Any process can listen
/// at any name and connect to any name, so both sides have to check.
bool isSameUser(const UniqueFd& socket);

}  // namespace mscclpp::detail
