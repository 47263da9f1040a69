// The bootstrap's handshake, from either side: strangers are refused, and who knows the secret is taken at its word.
#include <fuzzer/FuzzedDataProvider.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>
#include <vector>

#include "../../host/handshake.hpp"
#include "check.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;
using namespace mscclpp::fuzz;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t magic = 0x3170632b2b63736d;
constexpr int ownRank = 2;

// The wire, written down a second time: a change of it is a new version of the protocol.
struct Greeting {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  Nonce nonce;
};
struct Hello {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  Introduction introduction;
  Nonce nonce;
  Proof proof;
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

// Somebody knocks. With the secret every byte of the introduction may still be wrong.
void knock(FuzzedDataProvider& input) {
  UniqueFd listener = bindTo(loopback());
  const SocketAddress address = localAddressOf(listener);
  Doorkeeper door(std::move(listener), key(), Purpose::Mesh, ownRank, 3);
  int errorNumber = 0;
  const UniqueFd visitor = tryConnect(address, Deadline::after(5s), errorNumber);
  if (!visitor) return;
  const Deadline greeted = Deadline::after(10s);
  while (!isReadable(visitor)) {
    check(!greeted.expired(), "the accepting side speaks first");
    door.next(Deadline::after(1ms));  // lets it in
  }
  Greeting greeting;
  if (recvAll(visitor, &greeting, sizeof(greeting), Deadline::after(5s)) != Transfer::Done) return;

  const bool knowsSecret = input.ConsumeBool();
  Hello hello{};
  hello.magic = magic;
  hello.version = 1;
  hello.introduction = take<Introduction>(input);
  if (input.ConsumeBool()) hello.introduction.purpose = Purpose::Mesh;
  if (input.ConsumeBool()) hello.introduction.peer = ownRank;
  const bool isForMe = hello.introduction.purpose == Purpose::Mesh && hello.introduction.peer == ownRank;
  if (knowsSecret) {
    const std::uint32_t accepted = 1;
    hello.proof = proofOf(key(), {"mscclpp connecting",
                                  bytesOf(greeting),
                                  bytesOf(hello),
                                  {reinterpret_cast<const char*>(&accepted), sizeof(accepted)}});
  }
  const auto damage = input.ConsumeIntegralInRange<std::size_t>(0, sizeof(hello));
  if (damage < sizeof(hello)) reinterpret_cast<char*>(&hello)[damage] ^= 1;
  if (sendAll(visitor, &hello, sizeof(hello), Deadline::after(5s)) != Transfer::Done) return;
  ::shutdown(visitor.get(), SHUT_WR);
  const bool isWelcome = knowsSecret && isForMe && damage == sizeof(hello);
  // Whoever is welcome comes out at once; for the others it is looked once more.
  const auto guest = door.next(Deadline::after(isWelcome ? 5000ms : 1ms));
  check(guest.has_value() == isWelcome, "those come in that know the secret, and nobody else");
  if (guest) {
    check(std::memcmp(&guest->introduction, &hello.introduction, sizeof(Introduction)) == 0, "they are who they say");
  }
}

// Somebody else listens where a rank should.
void call(FuzzedDataProvider& input) {
  UniqueFd listener = bindTo(loopback());
  startListening(listener);
  Introduction self{};
  self.purpose = Purpose::Join;
  std::vector<char> bytes = input.ConsumeBytes<char>(sizeof(Greeting));
  if (input.ConsumeBool() && bytes.size() >= 12) {
    const std::uint32_t version = 1;
    std::memcpy(bytes.data(), &magic, sizeof(magic));
    std::memcpy(bytes.data() + 8, &version, sizeof(version));
  }
  const auto reply = input.ConsumeRemainingBytes<char>();
  const SocketAddress address = localAddressOf(listener);
  std::thread impostor([&] {
    pollfd entry{listener.get(), POLLIN, 0};
    ::poll(&entry, 1, 5000);
    const UniqueFd guest = acceptFrom(listener);
    listener = UniqueFd();
    if (!guest) return;
    const Deadline soon = Deadline::after(1s);
    if (sendAll(guest, bytes.data(), bytes.size(), soon) != Transfer::Done) return;
    sendAll(guest, reply.data(), reply.size(), soon);
  });
  bool isFooled = false;
  try {
    connectAndIntroduce(address, key(), self, Deadline::after(1ms), [] {});
    isFooled = true;
  } catch (const BaseError&) {
  }
  impostor.join();
  check(!isFooled, "nobody is taken for a rank without the secret");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  if (input.ConsumeBool()) {
    knock(input);
  } else {
    call(input);
  }
  return 0;
}
