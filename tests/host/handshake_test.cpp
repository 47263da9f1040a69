// The keyed handshake: who gets in, who does not, and that a recorded one is worth nothing.
#include "../../host/handshake.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "../../host/socket.hpp"
#include "mscclpp/host/error.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;
using namespace std::chrono_literals;

namespace {

const SocketAddress loopback{SocketAddress::Family::V4, 0, 0, {127, 0, 0, 1}};

Introduction introductionOf(int rank, Purpose purpose = Purpose::Join, int peer = 0) {
  return {purpose, rank, 4, peer, 0x1234, loopback};
}

struct Door {
  explicit Door(const Key& key) : Door(key, bindTo(loopback)) {}
  Door(const Key& key, UniqueFd listener)
      : address(localAddressOf(listener)), keeper(std::move(listener), key, Purpose::Join, 0, 4) {}
  SocketAddress address;
  Doorkeeper keeper;
};

// Whether `self` with `key` gets in at a door that has `doorKey`.
bool getsIn(const Key& doorKey, const Key& key, const Introduction& self) {
  Door door(doorKey);
  std::thread visitor([&] {
    try {
      connectAndIntroduce(door.address, key, self, Deadline::after(500ms), [] {});
    } catch (const Error&) {
    }
  });
  const auto guest = door.keeper.next(Deadline::after(300ms));
  visitor.join();
  return guest && guest->introduction.rank == self.rank;
}

std::string receive(const UniqueFd& socket, std::size_t size) {
  std::string bytes(size, '\0');
  if (recvAll(socket, bytes.data(), size, Deadline::after(1s)) != Transfer::Done) return "";
  return bytes;
}

UniqueFd connectTo(const SocketAddress& address) {
  int errorNumber = 0;
  return tryConnect(address, Deadline::after(1s), errorNumber);
}

constexpr std::size_t greetingBytes = 48, helloBytes = 128, replyBytes = 48;

}  // namespace

TEST_CASE("the right key opens, for the right purpose and rank") {
  const Key key = keyFromSecret(makeSecret());
  CHECK(getsIn(key, key, introductionOf(3)));
  CHECK_FALSE(getsIn(key, keyFromSecret(makeSecret()), introductionOf(3)));
  CHECK_FALSE(getsIn(key, keyForMeeting(key, makeNonce()), introductionOf(3)));
  CHECK_FALSE(getsIn(key, key, introductionOf(3, Purpose::Mesh)));
  CHECK_FALSE(getsIn(key, key, introductionOf(3, Purpose::Join, 1)));
}

TEST_CASE("keys follow from secrets, and secrets from texts") {
  CHECK(secretFromText("some text of a user") == secretFromText("some text of a user"));
  CHECK(secretFromText("some text of a user") != secretFromText("some text of a uses"));
  CHECK(makeSecret() != makeSecret());
  const Secret secret = makeSecret();
  CHECK(keyFromSecret(secret) == keyFromSecret(secret));
  CHECK(makeNonce() != makeNonce());
}

TEST_CASE("a recorded handshake does not open the door again, and a changed one not at all") {
  const Key key = keyFromSecret(makeSecret());
  Door door(key);
  // A relay between the rank and the door writes down what the rank says.
  UniqueFd relayListener = bindTo(loopback);
  startListening(relayListener);
  const SocketAddress relayAddress = localAddressOf(relayListener);
  std::string hello;
  const auto relayOnce = [&](auto&& change) {
    std::thread rank([&] {
      try {
        connectAndIntroduce(relayAddress, key, introductionOf(2), Deadline::after(300ms), [] {});
      } catch (const Error&) {
      }
    });
    UniqueFd inside = connectTo(door.address);
    door.keeper.next(Deadline::after(20ms));
    UniqueFd outside;
    while (!outside) outside = acceptFrom(relayListener);
    const std::string greeting = receive(inside, greetingBytes);
    CHECK(greeting.size() == greetingBytes);
    sendAll(outside, greeting.data(), greeting.size(), Deadline::after(1s));
    hello = receive(outside, helloBytes);
    CHECK(hello.size() == helloBytes);
    std::string passedOn = hello;
    change(passedOn);
    sendAll(inside, passedOn.data(), passedOn.size(), Deadline::after(1s));
    const auto guest = door.keeper.next(Deadline::after(200ms));
    const std::string reply = receive(inside, replyBytes);
    if (!reply.empty()) sendAll(outside, reply.data(), reply.size(), Deadline::after(1s));
    rank.join();
    return guest.has_value();
  };
  CHECK(relayOnce([](std::string&) {}));

  UniqueFd thief = connectTo(door.address);
  door.keeper.next(Deadline::after(20ms));
  CHECK(receive(thief, greetingBytes).size() == greetingBytes);
  sendAll(thief, hello.data(), hello.size(), Deadline::after(1s));
  CHECK_FALSE(door.keeper.next(Deadline::after(200ms)));
  CHECK(receive(thief, replyBytes).size() == replyBytes);  // the refusal
  CHECK(isClosed(thief));

  // Any changed bit of what the proof covers: here the rank, the host hash and the listening port.
  for (std::size_t place : {20u, 32u, 42u}) {
    CAPTURE(place);
    CHECK_FALSE(relayOnce([&](std::string& bytes) { bytes[place] = static_cast<char>(bytes[place] ^ 1); }));
  }
}

TEST_CASE("a rank notices that the door is a false one") {
  // It greets correctly and accepts anybody, but cannot prove that it knows the key.
  UniqueFd listener = bindTo(loopback);
  startListening(listener);
  const SocketAddress address = localAddressOf(listener);
  const Key key = keyFromSecret(makeSecret());
  std::string text;
  std::thread rank([&] {
    try {
      connectAndIntroduce(address, key, introductionOf(1), Deadline::after(2s), [] {});
    } catch (const Error& error) {
      text = error.what();
    }
  });
  UniqueFd socket;
  while (!socket) socket = acceptFrom(listener);
  std::string greeting(greetingBytes, '\0');
  std::memcpy(greeting.data(), "msc++cp1\1\0\0\0", 12);
  sendAll(socket, greeting.data(), greeting.size(), Deadline::after(1s));
  receive(socket, helloBytes);
  std::string reply(replyBytes, '\0');
  std::memcpy(reply.data(), "msc++cp1\1\0\0\0", 12);
  sendAll(socket, reply.data(), reply.size(), Deadline::after(1s));
  rank.join();
  CHECK(text.find("have different secrets") != std::string::npos);
}

TEST_CASE("what listens may be no mscclpp at all") {
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
      sendAll(socket, text.data(), text.size(), Deadline::after(1s));
      open.push_back(std::move(socket));
    }
  });
  CHECK_THROWS_WITH_AS(
      connectAndIntroduce(address, keyFromSecret(makeSecret()), introductionOf(1), Deadline::after(2s), [] {}),
      doctest::Contains("is not this version of mscclpp"), Error);
  done = true;
  server.join();
}

TEST_CASE("more strangers than there is room for push each other out, and a rank still gets in") {
  const Key key = keyFromSecret(makeSecret());
  Door door(key);
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 400; ++i) crowd.push_back(connectTo(door.address));
  std::atomic<bool> in{false};
  std::thread rank([&] {
    connectAndIntroduce(door.address, key, introductionOf(1), Deadline::after(5s), [] {});
    in = true;
  });
  const auto guest = door.keeper.next(Deadline::after(5s));
  rank.join();
  CHECK(guest);
  CHECK(in);
  int dropped = 0;
  for (const auto& stranger : crowd) {
    receive(stranger, greetingBytes);
    dropped += isClosed(stranger) ? 1 : 0;
  }
  CHECK(dropped >= 200);
  CHECK(dropped < 400);
}
