// The keyed handshake with which two ranks prove to each other that they belong to the same job.
//
// The side that accepts speaks first: a greeting with a fresh nonce. The side that connected answers with a hello: who
// it is, whom it means, why it connects, its own nonce, and a proof. The accepting side replies with a proof of its
// own. A proof is a MAC under the job's key over the side's name, the greeting, the hello and the verdict, so it is
// worth nothing for another connection, rank, purpose or direction. A stranger learns a nonce, no more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>

#include "proof.hpp"
#include "socket.hpp"

namespace mscclpp::detail {

/// A key for the connections of one meeting: two meetings under the same secret cannot mix.
Key keyForMeeting(const Key& key, const Nonce& meeting);

/// Why a connection is made; part of the proof.
enum class Purpose : std::uint32_t { Join = 1, Mesh = 2 };

/// What the connecting rank says about itself, once its proof was found good.
struct Introduction {
  Purpose purpose;
  std::int32_t rank;
  std::int32_t numRanks;
  std::int32_t peer;            ///< The rank that it means to reach.
  std::uint64_t hostHash;       ///< Equal for ranks of one host.
  SocketAddress listenAddress;  ///< Where it accepts connections of higher ranks.
};

/// Connects to `address` and shakes hands. While nobody listens there, or the listener is too busy to answer, tries
/// again until `deadline`. `checkpoint` is called between attempts and may throw to give up. Throws Error(Timeout),
/// or Error(InvalidUsage) if the other side has another secret or speaks another protocol version.
UniqueFd connectAndIntroduce(const SocketAddress& address, const Key& key, const Introduction& self, Deadline deadline,
                             const std::function<void()>& checkpoint);

/// The accepting side: serves any number of connections at once, and lets only those out that proved themselves.
/// Whoever is slow, wrong or one too many is dropped.
class Doorkeeper {
 public:
  struct Guest {
    Introduction introduction;
    UniqueFd socket;
  };

  /// `expected` is how many ranks may knock at the same moment; more strangers than that plus a reserve push each
  /// other out, oldest first.
  Doorkeeper(UniqueFd listener, const Key& key, Purpose purpose, int rank, std::size_t expected);

  ~Doorkeeper();

  /// The next rank that proved itself, or nothing at `deadline`.
  std::optional<Guest> next(Deadline deadline);

 private:
  struct Visitor;
  enum class Progress { Waiting, Proven, Refused };

  void admitVisitors();
  Progress listenTo(Visitor& visitor);

  UniqueFd listener_;
  Key key_;
  Purpose purpose_;
  int rank_;
  std::size_t capacity_;
  std::list<Visitor> visitors_;
};

}  // namespace mscclpp::detail
