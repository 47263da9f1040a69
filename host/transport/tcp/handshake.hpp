// How a TCP connection begins: both sides prove that they know the secret of the endpoint that is dialled.
//
// The secret travels in the serialised endpoint, over the bootstrap, which is authenticated itself. As in the bootstrap's
// own handshake the accepting side speaks first, and each proof covers everything said so far, both nonces included.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "../../deadline.hpp"
#include "../../socket.hpp"
#include "wire.hpp"

namespace mscclpp::detail::tcp {

Key keyOf(const Secret& secret);

/// Connects to the endpoint that `callee` describes, as endpoint `caller`. Throws Error(RemoteError) if nobody listens
/// there, Error(InvalidUsage) if the endpoint is taken or does not know the secret, Error(Timeout) at the deadline.
UniqueFd dial(const EndpointDetails& callee, const Id128& caller, Deadline deadline);

/// The accepting side of a connection whose peer has not proved yet who it is: sends the greeting and collects the hello,
/// without ever waiting.
class PendingPeer {
 public:
  /// An established connection that does not block.
  PendingPeer(UniqueFd socket, Deadline deadline);

  enum class State { Waiting, Complete, Gone };
  /// Takes what has arrived.
  State receive();
  const Deadline& deadline() const noexcept { return deadline_; }
  const UniqueFd& socket() const noexcept { return socket_; }
  /// Once complete.
  const Hello& hello() const noexcept { return hello_; }
  bool hasProven(const Key& key) const;
  /// Says the last word; a proof goes with it if the key is known. Returns the socket, or nothing if the peer left.
  std::optional<UniqueFd> answer(Verdict verdict, const std::optional<Key>& key);

 private:
  UniqueFd socket_;
  Deadline deadline_;
  Greeting greeting_;
  Hello hello_{};
  std::size_t received_ = 0;
};

}  // namespace mscclpp::detail::tcp
