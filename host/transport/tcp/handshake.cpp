#include "handshake.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "mscclpp/host/error.hpp"

namespace mscclpp::detail::tcp {

using namespace std::chrono_literals;

namespace {

constexpr std::string_view callingSide = "mscclpp tcp calling  ";
constexpr std::string_view acceptingSide = "mscclpp tcp accepting";

Proof prove(const Key& key, std::string_view side, const Greeting& greeting, Hello hello, Verdict verdict) {
  hello.proof = {};
  return proofOf(key, {side, bytesOf(greeting), bytesOf(hello), bytesOf(verdict)});
}

// Returns nothing, and says why, if another attempt may go better.
std::optional<Verdict> introduce(const UniqueFd& socket, const EndpointDetails& callee, const Id128& caller,
                                 Deadline deadline, std::string& trouble) {
  Greeting greeting;
  Transfer transfer = recvAll(socket, &greeting, sizeof(greeting), deadline);
  if (transfer == Transfer::Done) {
    if (greeting.magic != magic || greeting.version != protocolVersion) {
      throw Error("connect: what listens at " + callee.address.toString() +
                      " is not this version of mscclpp; use one version on all ranks",
                  ErrorCode::InvalidUsage);
    }
    const Key key = keyOf(callee.secret);
    Hello hello{magic, protocolVersion, 0, callee.id, caller, makeNonce(), {}};
    hello.proof = prove(key, callingSide, greeting, hello, Verdict::Accepted);
    transfer = sendAll(socket, &hello, sizeof(hello), deadline);
    Welcome welcome;
    if (transfer == Transfer::Done) transfer = recvAll(socket, &welcome, sizeof(welcome), deadline);
    if (transfer == Transfer::Done) {
      // A refusal needs no proof: whoever forges it could as well cut the connection.
      if (welcome.magic == magic && welcome.verdict == Verdict::Refused) return Verdict::Refused;
      const bool genuine = welcome.magic == magic &&
                           sameProof(welcome.proof, prove(key, acceptingSide, greeting, hello, welcome.verdict));
      return genuine ? welcome.verdict : Verdict::Refused;
    }
  }
  trouble = transfer == Transfer::Closed ? "it closed the connection" : "it did not answer";
  return std::nullopt;
}

}  // namespace

Key keyOf(const Secret& secret) {
  return keyFromSecret(secret, "mscclpp tcp key");
}

UniqueFd dial(const EndpointDetails& callee, const Id128& caller, Deadline deadline) {
  const std::string where = callee.address.toString();
  std::string trouble = "nothing was tried";
  auto pause = 2ms;
  while (true) {
    int errorNumber = 0;
    UniqueFd socket = tryConnect(callee.address, deadline, errorNumber);
    if (!socket && errorNumber == ECONNREFUSED) {
      throw Error("connect: nobody listens at " + where +
                      " any more; the peer has ended, or its endpoint and context are gone: keep them until both sides "
                      "have connected",
                  ErrorCode::RemoteError);
    }
    if (socket) {
      const auto verdict = introduce(socket, callee, caller, deadline, trouble);
      if (verdict == Verdict::Accepted) return socket;
      if (verdict == Verdict::Taken) {
        throw Error("connect: the peer's endpoint at " + where +
                        " has a connection already; make an endpoint for each connection",
                    ErrorCode::InvalidUsage);
      }
      if (verdict) {
        throw Error("connect: the endpoint is not, or no longer, to be had at " + where +
                        "; the peer keeps its endpoint until both sides have connected",
                    ErrorCode::InvalidUsage);
      }
    } else {
      trouble = std::strerror(errorNumber);
    }
    if (deadline.expired()) {
      throw Error("connect: could not reach the peer at " + where + " within " + deadline.passed() + " (" + trouble +
                      "); may this host connect to it? MSCCLPP_SOCKET_IFNAME chooses the interface",
                  ErrorCode::Timeout);
    }
    std::this_thread::sleep_for(std::min(pause, std::chrono::milliseconds(deadline.pollTimeout())));
    pause = std::min(pause * 2, 100ms);
  }
}

PendingPeer::PendingPeer(UniqueFd socket, Deadline deadline)
    : socket_(std::move(socket)), deadline_(deadline), greeting_{magic, protocolVersion, 0, makeNonce()} {
  // A fresh connection has room for a few bytes, or is not worth the wait: then the handshake never completes.
  [[maybe_unused]] const ssize_t sent = ::send(socket_.get(), &greeting_, sizeof(greeting_), MSG_NOSIGNAL);
}

PendingPeer::State PendingPeer::receive() {
  char* bytes = reinterpret_cast<char*>(&hello_);
  while (received_ < sizeof(Hello)) {
    const ssize_t count = ::recv(socket_.get(), bytes + received_, sizeof(Hello) - received_, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return State::Waiting;
    if (count <= 0) return State::Gone;
    received_ += static_cast<std::size_t>(count);
    // Garbage is recognised as soon as it can be.
    if (received_ >= sizeof(hello_.magic) && hello_.magic != magic) return State::Gone;
  }
  return hello_.version == protocolVersion ? State::Complete : State::Gone;
}

bool PendingPeer::hasProven(const Key& key) const {
  return sameProof(hello_.proof, prove(key, callingSide, greeting_, hello_, Verdict::Accepted));
}

std::optional<UniqueFd> PendingPeer::answer(Verdict verdict, const std::optional<Key>& key) {
  Welcome welcome{magic, verdict, 0, {}};
  if (key) welcome.proof = prove(*key, acceptingSide, greeting_, hello_, verdict);
  const ssize_t sent = ::send(socket_.get(), &welcome, sizeof(welcome), MSG_NOSIGNAL);
  if (sent != sizeof(welcome)) return std::nullopt;
  return std::move(socket_);
}

}  // namespace mscclpp::detail::tcp
