// What one side of a verbs connection sends to the other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/transport/verbs/sysfs.hpp"

namespace mscclpp::detail::ib {

inline constexpr int maxQueuePairs = 16;

/// How a signal reaches the peer's counter.
enum class SignalMode : std::uint32_t {
  Atomic,     ///< the devices add to it
  Immediate,  ///< a write-with-immediate notifies the peer's host, which adds to it
};

struct QueuePairAddress {
  std::uint32_t number;
  /// PSN of the first packet that it sends.
  std::uint32_t initialPsn;
};

struct EndpointInfo {
  /// "rxe0 port 1", and the process on the host, for messages.
  std::string nic;
  std::string process;
  /// Atomic if this side supports and wants it.
  SignalMode mode = SignalMode::Atomic;
  bool ethernet = false;
  std::uint32_t mtu = 0;  ///< an ibv_mtu
  std::uint32_t lid = 0;
  bool hasGid = false;
  Gid gid{};
  /// Maximum number of outstanding atomics of a queue pair, in either direction.
  std::uint32_t atomics = 0;
  std::vector<QueuePairAddress> queuePairs;

  std::vector<char> serialize() const;
  /// Throws Error(InvalidUsage) for bytes that serialize did not produce.
  static EndpointInfo deserialize(const std::vector<char>& bytes);
};

/// Both sides compute the same result: atomics only if both support and want them.
inline SignalMode negotiate(const EndpointInfo& a, const EndpointInfo& b) {
  return a.mode == SignalMode::Atomic && b.mode == SignalMode::Atomic ? SignalMode::Atomic : SignalMode::Immediate;
}

}  // namespace mscclpp::detail::ib
