#include "process_identity.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <fstream>
#include <mutex>
#include <string>

#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::detail {

namespace {

// FNV-1a: stable across processes and builds, unlike std::hash.
std::uint64_t stableHash(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

std::string hostIdentity() {
  if (!env()->hostid.empty()) return env()->hostid;
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, HOST_NAME_MAX);
  std::string bootId;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> bootId;
  return std::string(name) + '/' + bootId;
}

}  // namespace

Id128 randomId() {
  Id128 id;
  for (std::size_t filled = 0; filled < id.size();) {
    const ssize_t count = ::getrandom(id.data() + filled, id.size() - filled, 0);
    if (count < 0 && errno != EINTR) throw SysError("getrandom", errno);
    if (count > 0) filled += static_cast<std::size_t>(count);
  }
  return id;
}

Id128 processId() {
  static std::mutex mutex;
  static pid_t owner = -1;
  static Id128 id;
  std::lock_guard lock(mutex);
  if (owner != ::getpid()) {
    id = randomId();
    owner = ::getpid();
  }
  return id;
}

std::uint64_t hostHash() {
  static const std::uint64_t hash = stableHash(hostIdentity());
  return hash;
}

}  // namespace mscclpp::detail
