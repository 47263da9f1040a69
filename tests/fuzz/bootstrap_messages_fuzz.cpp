// Messages of peers that have joined the job: any bytes result in messages, or in a failure that names a rank.
#include <fuzzer/FuzzedDataProvider.h>
#include <sys/socket.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "check.hpp"
#include "host/bootstrap/peer_mesh.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;
using namespace mscclpp::fuzz;
using namespace std::chrono_literals;

namespace {

constexpr int ranks = 3;

struct Header {
  std::uint32_t type;
  std::int32_t tag;
  std::uint64_t size;
};

void sendBytes(const UniqueFd& socket, const void* data, std::size_t size) {
  [[maybe_unused]] const ssize_t sent = ::send(socket.get(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Mostly well-formed messages: few random bytes form one.
void sendMessage(const UniqueFd& socket, FuzzedDataProvider& input) {
  if (input.ConsumeProbability<float>() > 0.8F) {
    const auto bytes = input.ConsumeBytes<char>(40);
    return sendBytes(socket, bytes.data(), bytes.size());
  }
  const auto payload = input.ConsumeBytes<char>(input.ConsumeIntegralInRange<std::size_t>(0, 100));
  Header header{input.ConsumeIntegralInRange<std::uint32_t>(0, 6), input.ConsumeIntegralInRange<std::int32_t>(-4, 4),
                payload.size()};
  if (input.ConsumeProbability<float>() > 0.9F) header.size = input.ConsumeIntegral<std::uint64_t>();
  if (input.ConsumeProbability<float>() > 0.9F) header.tag = input.ConsumeIntegral<std::int32_t>();
  sendBytes(socket, &header, sizeof(header));
  sendBytes(socket, payload.data(), payload.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  PeerMesh mesh(0, ranks, 0ms);
  std::vector<UniqueFd> peers;
  for (int rank = 1; rank < ranks; ++rank) {
    auto [peer, own] = makeSocketPair();
    mesh.addPeer(rank, std::move(own));
    peers.push_back(std::move(peer));
  }
  while (input.remaining_bytes() > 0) sendMessage(peers[input.ConsumeBool() ? 1 : 0], input);
  for (UniqueFd& peer : peers) ::shutdown(peer.get(), SHUT_WR);
  // Each connection has ended, so nothing blocks: a message arrives, or an error gives the reason.
  for (int rank = 1; rank < ranks; ++rank) {
    for (const int tag : {0, 1}) {
      std::vector<char> bytes(4);
      try {
        mesh.recv(rank, tag, bytes.data(), bytes.size(), "recv", Deadline::after(20s));
      } catch (const Error& error) {
        check(error.getErrorCode() != ErrorCode::Timeout, "a receive from a peer that is gone ends");
      }
    }
  }
  if (const auto failure = mesh.failures().failure())
    check(failure->rank >= 0 && failure->rank < ranks, "a failure names a rank");
  peers.clear();
  return 0;
}
