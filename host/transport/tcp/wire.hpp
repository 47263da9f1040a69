// What two ends of a TCP connection say to each other. Every structure travels as its bytes.
//
// The side that issues operations dials; operations go one way, answers the other. Nothing on the wire is an address:
// memory is named by the random name of its registration, and an offset into it.
#pragma once

#include <cstdint>

#include "../../process_identity.hpp"
#include "../../proof.hpp"
#include "../../socket_address.hpp"

namespace mscclpp::detail::tcp {

inline constexpr std::uint64_t magic = 0x317063742b63736d;  // "msc+tcp1" as bytes
inline constexpr std::uint32_t protocolVersion = 2;

/// What an endpoint tells its peer beforehand, by way of the bootstrap. The secret lets its holder dial.
struct EndpointDetails {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  SocketAddress address;
  Id128 network;  ///< whose memory a connection to this endpoint reaches
  Id128 id;
  Secret secret;
};

/// First words, of the side that accepts.
struct Greeting {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  Nonce nonce;
};

/// The answer of the side that dials: which endpoint it means, and which it is.
struct Hello {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  Id128 callee;
  Id128 caller;
  Nonce nonce;
  Proof proof;
};

/// A stranger learns no more than that it is one.
enum class Verdict : std::uint32_t { Accepted = 1, Refused = 2, Taken = 3 };

struct Welcome {
  std::uint64_t magic;
  Verdict verdict;
  std::uint32_t reserved;
  Proof proof;
};

enum class Operation : std::uint32_t {
  Write = 1,   ///< `size` bytes follow
  Update = 2,  ///< sets a word to `value`
  Query = 3,   ///< asks for an answer when everything up to `number` has taken effect
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

enum class Outcome : std::uint32_t { Fine = 0, UnknownMemory = 1, OutOfRange = 2, Malformed = 3, CopyFailed = 4 };

/// Operations up to `completed` have taken effect. Any outcome but Fine is the last word, about the next operation.
struct Answer {
  std::uint64_t completed;
  Outcome outcome;
  std::uint32_t reserved;
};

}  // namespace mscclpp::detail::tcp
