// Identifies this process and this host to other processes.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

namespace mscclpp::detail {

/// 128 unpredictable bits.
using Id128 = std::array<std::uint8_t, 16>;
Id128 randomId();
/// 32 lower-case hexadecimal digits.
std::string hexText(const Id128& id);

/// Random, generated once per process and again after fork: equal only within one address space. A pid could be the
/// same in another pid namespace.
Id128 processId();

/// Records the process that created an object. A forked child has a copy of the object, but none of its threads, and it
/// shares sockets, epoll sets, GPU memory and verbs objects with its parent. Locks may have been held at the fork. So
/// there a destructor only closes descriptors and frees memory of its own: it takes no lock and waits for nothing.
class OwnerProcess {
 public:
  // Not defaulted: clang++ 14 would not accept const members of this class.
  OwnerProcess() noexcept : pid_(::getpid()) {}
  bool isCurrent() const noexcept { return pid_ == ::getpid(); }

 private:
  pid_t pid_;
};

/// Identifies a process among those of all hosts, by what the kernel knows of it.
struct ProcessIdentity {
  std::uint64_t boot;          ///< of the running system
  std::uint64_t pidNamespace;  ///< the namespace of `pid`
  std::uint64_t startTime;     ///< distinguishes it from a later process with the same pid
  std::int64_t pid;

  /// Of a process in the pid namespace of the caller. All zero if there is none, or /proc is not readable.
  static ProcessIdentity of(pid_t pid);

  bool operator==(const ProcessIdentity&) const = default;
};
static_assert(std::has_unique_object_representations_v<ProcessIdentity>);

/// Equal for processes of one host: a hash of the host's boot id and name, or of MSCCLPP_HOSTID if that is set.
std::uint64_t hostHash();

}  // namespace mscclpp::detail
