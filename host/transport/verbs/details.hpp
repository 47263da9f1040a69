// What one side of a connection over verbs tells the other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sysfs.hpp"

namespace mscclpp::detail::ib {

inline constexpr int maxQueuePairs = 16;

/// How a signal reaches the peer's counter.
enum class SignalMode : std::uint32_t {
  Atomic,     ///< the devices add to it
  Immediate,  ///< a write-with-immediate tells the peer's host, which adds to it
};

struct QueuePairAddress {
  std::uint32_t number;
  /// Of the first packet that it sends.
  std::uint32_t firstPacket;
};

struct Details {
  /// "rxe0 port 1", and the process on the host, for messages.
  std::string nic;
  std::string process;
  /// What this side can do and wishes.
  SignalMode mode = SignalMode::Atomic;
  bool ethernet = false;
  std::uint32_t mtu = 0;  ///< an ibv_mtu
  std::uint32_t lid = 0;
  bool hasGid = false;
  Gid gid{};
  /// Atomics that a queue pair can have under way, in either direction.
  std::uint32_t atomics = 0;
  std::vector<QueuePairAddress> queuePairs;

  std::vector<char> serialize() const;
  /// Throws Error(InvalidUsage) for anything that serialize did not write.
  static Details deserialize(const std::vector<char>& bytes);
};

/// Both sides come to the same answer: atomics only if both have them and want them.
inline SignalMode agree(const Details& a, const Details& b) {
  return a.mode == SignalMode::Atomic && b.mode == SignalMode::Atomic ? SignalMode::Atomic : SignalMode::Immediate;
}

}  // namespace mscclpp::detail::ib
