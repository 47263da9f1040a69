// The keyed handshake: clients that are accepted, clients that are rejected, and replay protection.
#include "host/bootstrap/handshake.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "host/bootstrap/unique_id.hpp"
#include "host/net/socket.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "tests/host/ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;
using namespace std::chrono_literals;

namespace {

const SocketAddress loopback{SocketAddress::Family::V4, 0, 0, {127, 0, 0, 1}};

PeerInfo makePeerInfo(int rank, Purpose purpose = Purpose::Join, int peer = 0) {
  return {purpose, rank, 4, peer, 0x1234, loopback};
}

// Long enough for a busy machine; no expected event takes as long.
Deadline testDeadline() {
  return Deadline::after(20s);
}

/// An acceptor and the thread that runs it.
class AcceptorThread {
 public:
  explicit AcceptorThread(const Key& key) : AcceptorThread(key, bindTo(loopback)) {}
  AcceptorThread(const Key& key, UniqueFd listener)
      : address(localAddressOf(listener)), acceptor_(std::move(listener), key, Purpose::Join, 0, 4), thread_([this] {
          while (!stopped_) {
            if (auto peer = acceptor_.accept(Deadline::after(5ms))) {
              std::lock_guard lock(mutex_);
              peers_.push_back(std::move(*peer));
            }
          }
        }) {}
  ~AcceptorThread() {
    stopped_ = true;
    thread_.join();
  }

  std::size_t numPeers() {
    std::lock_guard lock(mutex_);
    return peers_.size();
  }
  /// Whether the number of accepted peers reaches `count` soon.
  bool acceptsPeers(std::size_t count) {
    const Deadline deadline = testDeadline();
    while (numPeers() < count && !deadline.expired()) std::this_thread::sleep_for(1ms);
    return numPeers() == count;
  }

  const SocketAddress address;

 private:
  Acceptor acceptor_;
  std::mutex mutex_;
  std::vector<Acceptor::AuthenticatedPeer> peers_;
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

// Whether `self` with `key` is authenticated by an acceptor that has `acceptorKey`; else it is rejected.
bool authenticates(const Key& acceptorKey, const Key& key, const PeerInfo& self, Deadline deadline) {
  AcceptorThread acceptor(acceptorKey);
  try {
    connectAndAuthenticate(acceptor.address, key, self, deadline);
  } catch (const Error&) {
    return acceptor.numPeers() > 0;
  }
  return acceptor.acceptsPeers(1);
}

std::string receive(const UniqueFd& socket, std::size_t size) {
  std::string bytes(size, '\0');
  if (recvAll(socket, bytes.data(), size, testDeadline()) != TransferStatus::Done) return "";
  return bytes;
}

UniqueFd connectTo(const SocketAddress& address) {
  int errorNumber = 0;
  return tryConnect(address, testDeadline(), errorNumber);
}

constexpr std::size_t challengeBytes = 48, helloBytes = 128, replyBytes = 48;

}  // namespace

TEST_CASE("the right key authenticates, for its purpose and rank only") {
  const Key key = keyFromSecret(makeSecret());
  CHECK(authenticates(key, key, makePeerInfo(3), testDeadline()));
  CHECK_FALSE(authenticates(key, keyFromSecret(makeSecret()), makePeerInfo(3), testDeadline()));
  CHECK_FALSE(authenticates(key, deriveSessionKey(key, makeNonce()), makePeerInfo(3), testDeadline()));
  CHECK_FALSE(authenticates(key, key, makePeerInfo(3, Purpose::Mesh), Deadline::after(300ms)));
  CHECK_FALSE(authenticates(key, key, makePeerInfo(3, Purpose::Join, 1), Deadline::after(300ms)));
}

TEST_CASE("keys are derived from secrets, and secrets from texts") {
  CHECK(secretFromText("some text of a user") == secretFromText("some text of a user"));
  CHECK(secretFromText("some text of a user") != secretFromText("some text of a uses"));
  CHECK(makeSecret() != makeSecret());
  const Secret secret = makeSecret();
  CHECK(keyFromSecret(secret) == keyFromSecret(secret));
  CHECK(makeNonce() != makeNonce());
}

TEST_CASE("a replayed or modified handshake is rejected") {
  const Key key = keyFromSecret(makeSecret());
  AcceptorThread acceptor(key);
  // A relay between the rank and the acceptor records what the rank sends.
  UniqueFd relayListener = bindTo(loopback);
  startListening(relayListener);
  const SocketAddress relayAddress = localAddressOf(relayListener);
  std::string hello;
  const auto relayOnce = [&](auto&& change) {
    std::thread rank([&] {
      try {
        connectAndAuthenticate(relayAddress, key, makePeerInfo(2), testDeadline());
      } catch (const Error&) {
      }
    });
    UniqueFd toAcceptor = connectTo(acceptor.address);
    UniqueFd toRank;
    while (!toRank) toRank = acceptFrom(relayListener);
    const std::string challenge = receive(toAcceptor, challengeBytes);
    CHECK(challenge.size() == challengeBytes);
    sendAll(toRank, challenge.data(), challenge.size(), testDeadline());
    hello = receive(toRank, helloBytes);
    CHECK(hello.size() == helloBytes);
    std::string forwarded = hello;
    change(forwarded);
    sendAll(toAcceptor, forwarded.data(), forwarded.size(), testDeadline());
    const std::string reply = receive(toAcceptor, replyBytes);
    CHECK(reply.size() == replyBytes);
    sendAll(toRank, reply.data(), reply.size(), testDeadline());
    rank.join();
    return toAcceptor;
  };
  const UniqueFd accepted = relayOnce([](std::string&) {});
  CHECK(acceptor.acceptsPeers(1));
  CHECK_FALSE(isClosed(accepted));

  const UniqueFd attacker = connectTo(acceptor.address);
  CHECK(receive(attacker, challengeBytes).size() == challengeBytes);
  sendAll(attacker, hello.data(), hello.size(), testDeadline());
  CHECK(receive(attacker, replyBytes).size() == replyBytes);  // the rejection
  CHECK(receive(attacker, 1) == "");                          // and nothing else
  CHECK(isClosed(attacker));

  // Flip bits that the MAC covers: here in the rank, the host hash and the listening port.
  for (std::size_t offset : {20u, 32u, 42u}) {
    CAPTURE(offset);
    const UniqueFd changed =
        relayOnce([&](std::string& bytes) { bytes[offset] = static_cast<char>(bytes[offset] ^ 1); });
    CHECK(receive(changed, 1) == "");
    CHECK(isClosed(changed));
  }
  CHECK(acceptor.numPeers() == 1);
}

TEST_CASE("a rank rejects an acceptor without the key") {
  // It sends a valid challenge and accepts any client, but cannot authenticate itself with the key.
  UniqueFd listener = bindTo(loopback);
  startListening(listener);
  const SocketAddress address = localAddressOf(listener);
  const Key key = keyFromSecret(makeSecret());
  std::string text;
  std::thread rank([&] {
    try {
      connectAndAuthenticate(address, key, makePeerInfo(1), testDeadline());
    } catch (const Error& error) {
      text = error.what();
    }
  });
  UniqueFd socket;
  while (!socket) socket = acceptFrom(listener);
  std::string challenge(challengeBytes, '\0');
  std::memcpy(challenge.data(), "msc++cp1\1\0\0\0", 12);
  sendAll(socket, challenge.data(), challenge.size(), testDeadline());
  receive(socket, helloBytes);
  std::string reply(replyBytes, '\0');
  std::memcpy(reply.data(), "msc++cp1\1\0\0\0", 12);
  sendAll(socket, reply.data(), reply.size(), testDeadline());
  rank.join();
  CHECK(text.find("have different secrets") != std::string::npos);
}

TEST_CASE("a listener of another protocol is rejected") {
  UniqueFd listener = bindTo(loopback);
  startListening(listener);
  const SocketAddress address = localAddressOf(listener);
  std::atomic<bool> done{false};
  std::thread server([&] {
    std::vector<UniqueFd> open;
    while (!done) {
      UniqueFd socket = acceptFrom(listener);
      if (!socket) {
        std::this_thread::sleep_for(1ms);
        continue;
      }
      const std::string text = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n    ";
      sendAll(socket, text.data(), text.size(), testDeadline());
      open.push_back(std::move(socket));
    }
  });
  CHECK_THROWS_WITH_AS(connectAndAuthenticate(address, keyFromSecret(makeSecret()), makePeerInfo(1), testDeadline()),
                       doctest::Contains("is not this version of mscclpp"), Error);
  done = true;
  server.join();
}

TEST_CASE("unauthenticated clients beyond the limit evict each other, and a rank is still accepted") {
  const Key key = keyFromSecret(makeSecret());
  AcceptorThread acceptor(key);
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 400; ++i) clients.push_back(connectTo(acceptor.address));
  const UniqueFd rank = connectAndAuthenticate(acceptor.address, key, makePeerInfo(1), testDeadline());
  CHECK(acceptor.acceptsPeers(1));
  int dropped = 0;
  for (const auto& client : clients) {
    receive(client, challengeBytes);
    dropped += isClosed(client) ? 1 : 0;
  }
  CHECK(dropped >= 200);
  CHECK(dropped < 400);
}

TEST_CASE("a client that sends its message slowly is disconnected in time") {
  const Key key = keyFromSecret(makeSecret());
  AcceptorThread acceptor(key);
  const UniqueFd slowClient = connectTo(acceptor.address);
  CHECK(receive(slowClient, challengeBytes).size() == challengeBytes);
  const std::string message = "msc++cp1" + std::string(helloBytes - 8, '\0');
  const Deadline deadline = Deadline::after(15s);
  for (std::size_t i = 0; i < message.size() && !isClosed(slowClient) && !deadline.expired(); ++i) {
    ::send(slowClient.get(), &message[i], 1, MSG_NOSIGNAL);
    std::this_thread::sleep_for(150ms);
  }
  CHECK(isClosed(slowClient));
  CHECK_FALSE(deadline.expired());
  CHECK(acceptor.numPeers() == 0);
}

TEST_CASE("a rank out of range is rejected with an error") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const Rendezvous rendezvous = fromUniqueId(id);
  std::string outcome;
  std::thread host([&] {
    try {
      TcpBootstrap(0, 4).initialize(id, 20);
    } catch (const Error& error) {
      outcome = error.what();
    }
  });
  const UniqueFd invalidRank =
      connectAndAuthenticate(rendezvous.address, keyFromSecret(rendezvous.secret), makePeerInfo(9), testDeadline());
  host.join();
  CHECK(outcome.find("a process joined as rank 9") != std::string::npos);
}

namespace {

constexpr uid_t otherUser = 65534;

void becomeOtherUser() {
  if (::setgid(otherUser) != 0 || ::setuid(otherUser) != 0) throw std::runtime_error("setuid");
}

}  // namespace

TEST_CASE("without a secret, a process of another user does not join over loopback") {
  if (::geteuid() != 0) return;  // only root can become another user
  const std::string address = "127.0.0.1:" + std::to_string(test::freePort());
  const SocketAddress socketAddress = parseRendezvousAddress(address, testDeadline()).address;
  const Key key = keyFromSecret(secretForAddress(socketAddress));
  std::string outcome = "none";
  std::thread rank0([&] {
    try {
      TcpBootstrap(0, 2).initialize(address, 20);
      outcome = "";
    } catch (const BaseError& error) {
      outcome = error.what();
    }
  });
  // If accepted, it would fail the job, with a different number of ranks.
  test::ChildProcess attacker([&] {
    becomeOtherUser();
    connectAndAuthenticate(socketAddress, key, makePeerInfo(1), Deadline::after(2s));
    throw std::runtime_error("it was authenticated");
  });
  CHECK(attacker.wait().find("different secrets") == std::string::npos);
  TcpBootstrap(1, 2).initialize(address, 20);
  rank0.join();
  CHECK(outcome == "");
}

TEST_CASE("without a secret, a process of another user is not accepted as rank 0 over loopback") {
  if (::geteuid() != 0) return;  // only root can become another user
  const std::string address = "127.0.0.1:" + std::to_string(test::freePort());
  const SocketAddress socketAddress = parseRendezvousAddress(address, testDeadline()).address;
  const Key key = keyFromSecret(secretForAddress(socketAddress));
  test::ChildProcess attacker([&] {
    becomeOtherUser();
    Acceptor acceptor(bindTo(socketAddress), key, Purpose::Join, 0, 2);
    const auto peer = acceptor.accept(Deadline::after(60s));
    ::pause();  // holds the connection until the test kills this process
  });
  CHECK_THROWS_WITH_AS(TcpBootstrap(1, 2).initialize(address, 20),
                       doctest::Contains("a process of another user (65534) listens at 127.0.0.1"), Error);
}

TEST_CASE("an acceptor without file descriptors reports that at once") {
  test::ChildProcess rank([] {
    UniqueFd listener = bindTo(loopback);
    const SocketAddress address = localAddressOf(listener);
    Acceptor acceptor(std::move(listener), keyFromSecret(makeSecret()), Purpose::Join, 0, 4);
    const UniqueFd client = connectTo(address);
    const auto limit = static_cast<rlim_t>(::dup(STDIN_FILENO) + 1);
    const rlimit limits{limit, limit};
    ::setrlimit(RLIMIT_NOFILE, &limits);
    acceptor.accept(Deadline::after(30s));
  });
  const auto start = std::chrono::steady_clock::now();
  CHECK(rank.wait().find("rank 0 cannot accept connections of the other ranks (System failure: Too many open") !=
        std::string::npos);
  CHECK(test::secondsSince(start) < 10);
}

namespace {

// What rank 1 throws at a reply of a simulated rank 0 that knows the secret.
std::string outcomeOfReply(const std::string& reply) {
  UniqueFd listener = bindTo(loopback);
  const Rendezvous rendezvous{localAddressOf(listener), makeSecret()};
  Acceptor acceptor(std::move(listener), keyFromSecret(rendezvous.secret), Purpose::Join, 0, 2);
  std::string outcome = "none";
  std::thread rank([&] {
    try {
      TcpBootstrap(1, 2).initialize(toUniqueId(rendezvous), 20);
    } catch (const std::exception& error) {
      outcome = error.what();
    }
  });
  const auto peer = acceptor.accept(testDeadline());
  if (peer) sendAll(peer->socket, reply.data(), reply.size(), testDeadline());
  if (peer) receive(peer->socket, 1);  // until the rank closes the connection
  rank.join();
  return outcome;
}

// kind, error code, size; a nonce follows.
std::string makeReply(std::uint32_t kind, std::uint64_t size) {
  std::string reply(48, '\0');
  std::memcpy(reply.data(), &kind, sizeof(kind));
  std::memcpy(reply.data() + 8, &size, sizeof(size));
  return reply;
}

}  // namespace

TEST_CASE("a size that rank 0 announces is checked before memory is allocated for it") {
  for (std::uint32_t kind : {1u, 2u}) {
    for (std::uint64_t size : {std::uint64_t{1} << 50, std::uint64_t{2049}, ~std::uint64_t{0}}) {
      CAPTURE(kind);
      CAPTURE(size);
      CHECK(outcomeOfReply(makeReply(kind, size)).find("sent a table that cannot be read") != std::string::npos);
    }
  }
}

TEST_CASE("control characters of rank 0's error do not reach the terminal") {
  const std::string text = "\x1b[2J\x07 red \xc2\x9b text";
  const std::string outcome = outcomeOfReply(makeReply(2, text.size()) + text);
  CHECK(outcome.find("rank 0 ended the rendezvous: ?[2J? red ? text") != std::string::npos);
}
