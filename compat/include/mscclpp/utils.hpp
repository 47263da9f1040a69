// MSCCL++'s host utilities: names of hosts and network devices.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <string>

#include "mscclpp/core.hpp"
#include "mscclpp/errors.hpp"
#include "mscclpp/host/transport/ib_devices.hpp"

namespace mscclpp {

/// The host's name up to the first `delim`, at most `maxlen` characters.
inline std::string getHostName(int maxlen, const char delim) {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) throw SysError("gethostname", errno);
  const std::string whole(name);
  const std::string first = whole.substr(0, whole.find(delim));
  return first.substr(0, maxlen < 0 ? 0 : static_cast<std::size_t>(maxlen));
}

/// Whether memory can be shared between hosts by fabric handles: no, this library shares it within a host only.
inline bool isFabricMemHandleAvailable() {
  return false;
}

namespace detail {

/// Combines the hash of a value into `hash`.
template <typename T>
void hashCombine(std::size_t& hash, const T& value) {
  constexpr std::size_t oddFactor = 0x100000001b3;
  hash = (hash ^ std::hash<T>()(value)) * oddFactor;
}

}  // namespace detail
}  // namespace mscclpp
