// The messages between the two ends of a TCP connection. Structures are sent as their bytes.
//
// The side that issues operations connects; operations are sent in one direction, replies in the other. Messages
// contain no addresses: memory is identified by the random id of its registration and an offset into it.
#pragma once

#include <cstdint>

#include "host/base/process_identity.hpp"
#include "host/net/authentication.hpp"
#include "host/net/handshake.hpp"
#include "host/net/socket_address.hpp"

namespace mscclpp::detail::tcp {

inline constexpr std::uint64_t magic = 0x317063742b63736d;  // "msc+tcp1" as bytes
inline constexpr std::uint32_t protocolVersion = 3;

/// Sent to the peer beforehand, over the bootstrap. Any process that has the secret can connect.
struct EndpointInfo {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  SocketAddress address;
  Id128 network;  ///< whose memory a connection to this endpoint reaches
  Id128 id;
  Secret secret;
};

/// The connecting side's request in the handshake: the endpoint to which it connects, and its own.
struct EndpointPair {
  Id128 target;
  Id128 initiator;
};

using Challenge = mscclpp::detail::Challenge;
using ConnectRequest = HandshakeRequest<EndpointPair>;
using ConnectStatus = HandshakeStatus;
using ConnectReply = HandshakeReply;

enum class Operation : std::uint32_t {
  Write = 1,   ///< `size` bytes follow
  Update = 2,  ///< sets a word to `value`
  Query = 3,   ///< requests a reply when everything up to `number` has taken effect
};

struct Message {
  Operation operation;
  std::uint32_t reserved;
  std::uint64_t number;
  Id128 memory;
  std::uint64_t offset;
  std::uint64_t size;
  std::uint64_t value;
};

enum class Status : std::uint32_t { Ok = 0, UnknownMemory = 1, OutOfRange = 2, Malformed = 3, CopyFailed = 4 };

/// Operations up to `completed` have taken effect. Any status other than Ok concerns the next operation, and ends the
/// connection.
struct Reply {
  std::uint64_t completed;
  Status status;
  std::uint32_t reserved;
};

}  // namespace mscclpp::detail::tcp
