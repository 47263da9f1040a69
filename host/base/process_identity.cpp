#include "host/base/process_identity.hpp"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <fstream>
#include <mutex>
#include <string>

#include "host/base/process_status.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

namespace {

// FNV-1a: stable across processes and builds, unlike std::hash.
std::uint64_t fnv1aHash(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

// Of the running system; empty if there is none.
std::string bootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::string hostIdentity() {
  if (!env()->hostid.empty()) return env()->hostid;
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, HOST_NAME_MAX);
  return std::string(name) + '/' + bootId();
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

std::string hexText(const Id128& id) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (std::uint8_t byte : id) text += {digits[byte >> 4], digits[byte & 15]};
  return text;
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

ProcessIdentity ProcessIdentity::of(pid_t pid) {
  const std::string boot = bootId();
  struct stat pidNamespace {};
  const auto status = statusOf(pid);
  if (boot.empty() || ::stat("/proc/self/ns/pid", &pidNamespace) != 0 || !status) return {};
  return {fnv1aHash(boot), pidNamespace.st_ino, status->startTime, pid};
}

std::uint64_t hostHash() {
  static const std::uint64_t hash = fnv1aHash(hostIdentity());
  return hash;
}

}  // namespace mscclpp::detail
