// The bootstrap's handshake, from either side: clients without the secret are rejected, clients with it are accepted.
#include <fuzzer/FuzzedDataProvider.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>
#include <vector>

#include "check.hpp"
#include "host/bootstrap/handshake.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;
using namespace mscclpp::fuzz;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t magic = 0x3170632b2b63736d;
constexpr int ownRank = 2;

// A second definition of the wire format: changing it requires a new version of the protocol.
struct WireChallenge {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  Nonce nonce;
};
struct WireRequest {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  PeerInfo peerInfo;
  Nonce nonce;
  AuthTag authTag;
};

const Key& key() {
  static const Key key = keyFromSecret(Secret{1, 2, 3});
  return key;
}

const SocketAddress& loopback() {
  static const SocketAddress address{SocketAddress::Family::V4, 0, 0, {127, 0, 0, 1}};
  return address;
}

bool isReadable(const UniqueFd& socket) {
  pollfd entry{socket.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

template <class T>
T take(FuzzedDataProvider& input) {
  T value{};
  const auto bytes = input.ConsumeBytes<char>(sizeof(T));
  if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
  return value;
}

// A client connects. Even with the secret every byte of its peer info may be wrong.
void fuzzAcceptor(FuzzedDataProvider& input) {
  UniqueFd listener = bindTo(loopback());
  const SocketAddress address = localAddressOf(listener);
  Acceptor acceptor(std::move(listener), key(), Purpose::Mesh, ownRank, 3);
  int errorNumber = 0;
  const UniqueFd client = tryConnect(address, Deadline::after(5s), errorNumber);
  if (!client) return;
  const Deadline challengeDeadline = Deadline::after(10s);
  while (!isReadable(client)) {
    check(!challengeDeadline.expired(), "the accepting side sends the challenge first");
    acceptor.accept(Deadline::after(1ms));  // accepts it
  }
  WireChallenge challenge;
  if (recvAll(client, &challenge, sizeof(challenge), Deadline::after(5s)) != TransferStatus::Done) return;

  const bool knowsSecret = input.ConsumeBool();
  WireRequest request{};
  request.magic = magic;
  request.version = 1;
  request.peerInfo = take<PeerInfo>(input);
  if (input.ConsumeBool()) request.peerInfo.purpose = Purpose::Mesh;
  if (input.ConsumeBool()) request.peerInfo.peer = ownRank;
  const bool isForThisRank = request.peerInfo.purpose == Purpose::Mesh && request.peerInfo.peer == ownRank;
  if (knowsSecret) {
    const std::uint32_t accepted = 1;
    request.authTag = computeAuthTag(key(), {"mscclpp connecting",
                                             bytesOf(challenge),
                                             bytesOf(request),
                                             {reinterpret_cast<const char*>(&accepted), sizeof(accepted)}});
  }
  const auto flippedByte = input.ConsumeIntegralInRange<std::size_t>(0, sizeof(request));
  if (flippedByte < sizeof(request)) reinterpret_cast<char*>(&request)[flippedByte] ^= 1;
  if (sendAll(client, &request, sizeof(request), Deadline::after(5s)) != TransferStatus::Done) return;
  ::shutdown(client.get(), SHUT_WR);
  const bool shouldAuthenticate = knowsSecret && isForThisRank && flippedByte == sizeof(request);
  // A rank is returned at once; for other clients accept() runs until its deadline.
  const auto peer = acceptor.accept(Deadline::after(shouldAuthenticate ? 5000ms : 1ms));
  check(peer.has_value() == shouldAuthenticate, "clients that know the secret are authenticated, and no others");
  if (peer) {
    check(std::memcmp(&peer->peerInfo, &request.peerInfo, sizeof(PeerInfo)) == 0, "the peer info is what was sent");
  }
}

// Another process listens where a rank should.
void fuzzConnector(FuzzedDataProvider& input) {
  UniqueFd listener = bindTo(loopback());
  startListening(listener);
  PeerInfo self{};
  self.purpose = Purpose::Join;
  std::vector<char> bytes = input.ConsumeBytes<char>(sizeof(WireChallenge));
  if (input.ConsumeBool() && bytes.size() >= 12) {
    const std::uint32_t version = 1;
    std::memcpy(bytes.data(), &magic, sizeof(magic));
    std::memcpy(bytes.data() + 8, &version, sizeof(version));
  }
  const auto reply = input.ConsumeRemainingBytes<char>();
  const SocketAddress address = localAddressOf(listener);
  std::thread fakeServer([&] {
    pollfd entry{listener.get(), POLLIN, 0};
    ::poll(&entry, 1, 5000);
    const UniqueFd peer = acceptFrom(listener);
    listener = UniqueFd();
    if (!peer) return;
    const Deadline soon = Deadline::after(1s);
    if (sendAll(peer, bytes.data(), bytes.size(), soon) != TransferStatus::Done) return;
    sendAll(peer, reply.data(), reply.size(), soon);
  });
  bool authenticated = false;
  try {
    connectAndAuthenticate(address, key(), self, Deadline::after(1ms));
    authenticated = true;
  } catch (const BaseError&) {
  }
  fakeServer.join();
  check(!authenticated, "no process is taken for a rank without the secret");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  if (input.ConsumeBool()) {
    fuzzAcceptor(input);
  } else {
    fuzzConnector(input);
  }
  return 0;
}
