// The receiving end of a TCP connection, and the handshake before it, with arbitrary bytes.
#include <sys/socket.h>

#include <cstring>

#include "check.hpp"
#include "host/transport/tcp/handshake.hpp"
#include "host/transport/tcp/tcp_receiver.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;
using namespace mscclpp::detail::tcp;
using namespace mscclpp::fuzz;
using namespace std::chrono_literals;

namespace {

void feedInbound(const std::uint8_t* data, std::size_t size) {
  auto [peer, own] = makeSocketPair();
  Registry registry;
  std::vector<char> memory(64);
  registry.add(std::make_shared<Registration>(memory.data(), memory.size(), -1));
  TcpReceiver inbound(std::move(own), registry, nullptr);
  while (size > 0) {
    const ssize_t count = ::send(peer.get(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      data += count;
      size -= static_cast<std::size_t>(count);
    }
    if (!inbound.serve()) return;
  }
  inbound.serve();
  check(memory == std::vector<char>(64), "who does not know the name of memory cannot write it");
}

// The first byte is the length of the first part.
void feedPendingPeer(const std::uint8_t* data, std::size_t size) {
  auto [peer, own] = makeSocketPair();
  PendingPeer pending(std::move(own), Deadline::after(1s));
  const std::size_t first = size > 0 ? std::min<std::size_t>(data[0], size) : 0;
  [[maybe_unused]] ssize_t sent = ::send(peer.get(), data, first, MSG_NOSIGNAL | MSG_DONTWAIT);
  PendingPeer::State state = pending.receive();
  sent = ::send(peer.get(), data + first, std::min<std::size_t>(size - first, 4096), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (state == PendingPeer::State::Waiting) state = pending.receive();
  if (state != PendingPeer::State::Complete) return;
  const Key key = deriveKey({});
  check(!pending.verify(key), "no client authenticates without the secret");
  check(pending.reply(ConnectStatus::Unauthorized, std::nullopt), "an unauthenticated client is notified");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return -1;
  if (data[0] % 2 == 0) {
    feedInbound(data + 1, size - 1);
  } else {
    feedPendingPeer(data + 1, size - 1);
  }
  return 0;
}
