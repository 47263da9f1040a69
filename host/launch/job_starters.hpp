// Which processes may have started all ranks of a job whose launcher gave it no name.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace mscclpp::detail {

/// The parent of this process and, as long as an ancestor has started this rank only, the next ancestor: the processes
/// that may have started all ranks. Any two ranks of a job have one in common. An ancestor has started this rank only
///  - if it has `assignment` ("RANK=3") in its environment or as an argument, like `timeout` and `env`; or
///  - if it does nothing but wait for this rank, like a subshell or a script that runs one rank: its one thread waits
///    for its one child, so it cannot start another. The leader of a session does not count, since its parent, such as
///    a terminal, has started unrelated jobs too.
std::vector<pid_t> findJobStarters(const std::string& assignment);

}  // namespace mscclpp::detail
