// The keyed handshake: who gets in, who does not, and that a recorded one is worth nothing.
#include "../../host/handshake.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../../host/socket.hpp"
#include "../../host/unique_id.hpp"
#include "mscclpp/host/bootstrap.hpp"
#include "mscclpp/host/error.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;
using namespace std::chrono_literals;

namespace {

const SocketAddress loopback{SocketAddress::Family::V4, 0, 0, {127, 0, 0, 1}};

Introduction introductionOf(int rank, Purpose purpose = Purpose::Join, int peer = 0) {
  return {purpose, rank, 4, peer, 0x1234, loopback};
}

// Long for a busy machine; nothing that a test expects takes as much.
Deadline inGoodTime() {
  return Deadline::after(20s);
}

/// A door, and a thread that keeps it.
class Door {
 public:
  explicit Door(const Key& key) : Door(key, bindTo(loopback)) {}
  Door(const Key& key, UniqueFd listener)
      : address(localAddressOf(listener)), keeper_(std::move(listener), key, Purpose::Join, 0, 4), thread_([this] {
          while (!isShut_) {
            if (auto guest = keeper_.next(Deadline::after(5ms))) {
              std::lock_guard lock(mutex_);
              guests_.push_back(std::move(*guest));
            }
          }
        }) {}
  ~Door() {
    isShut_ = true;
    thread_.join();
  }

  std::size_t guests() {
    std::lock_guard lock(mutex_);
    return guests_.size();
  }
  /// Whether there are so many at some time soon.
  bool lets(std::size_t count) {
    const Deadline deadline = inGoodTime();
    while (guests() < count && !deadline.expired()) std::this_thread::sleep_for(1ms);
    return guests() == count;
  }

  const SocketAddress address;

 private:
  Doorkeeper keeper_;
  std::mutex mutex_;
  std::vector<Doorkeeper::Guest> guests_;
  std::atomic<bool> isShut_ = false;
  std::thread thread_;
};

// Whether `self` with `key` gets in at a door that has `doorKey`; else it is told so, or shown out again and again.
bool getsIn(const Key& doorKey, const Key& key, const Introduction& self, Deadline patience) {
  Door door(doorKey);
  try {
    connectAndIntroduce(door.address, key, self, patience, [] {});
  } catch (const Error&) {
    return door.guests() > 0;
  }
  return door.lets(1);
}

std::string receive(const UniqueFd& socket, std::size_t size) {
  std::string bytes(size, '\0');
  if (recvAll(socket, bytes.data(), size, inGoodTime()) != Transfer::Done) return "";
  return bytes;
}

UniqueFd connectTo(const SocketAddress& address) {
  int errorNumber = 0;
  return tryConnect(address, inGoodTime(), errorNumber);
}

constexpr std::size_t greetingBytes = 48, helloBytes = 128, replyBytes = 48;

}  // namespace

TEST_CASE("the right key opens, for the right purpose and rank") {
  const Key key = keyFromSecret(makeSecret());
  CHECK(getsIn(key, key, introductionOf(3), inGoodTime()));
  CHECK_FALSE(getsIn(key, keyFromSecret(makeSecret()), introductionOf(3), inGoodTime()));
  CHECK_FALSE(getsIn(key, keyForMeeting(key, makeNonce()), introductionOf(3), inGoodTime()));
  CHECK_FALSE(getsIn(key, key, introductionOf(3, Purpose::Mesh), Deadline::after(300ms)));
  CHECK_FALSE(getsIn(key, key, introductionOf(3, Purpose::Join, 1), Deadline::after(300ms)));
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
        connectAndIntroduce(relayAddress, key, introductionOf(2), inGoodTime(), [] {});
      } catch (const Error&) {
      }
    });
    UniqueFd inside = connectTo(door.address);
    UniqueFd outside;
    while (!outside) outside = acceptFrom(relayListener);
    const std::string greeting = receive(inside, greetingBytes);
    CHECK(greeting.size() == greetingBytes);
    sendAll(outside, greeting.data(), greeting.size(), inGoodTime());
    hello = receive(outside, helloBytes);
    CHECK(hello.size() == helloBytes);
    std::string passedOn = hello;
    change(passedOn);
    sendAll(inside, passedOn.data(), passedOn.size(), inGoodTime());
    const std::string reply = receive(inside, replyBytes);
    CHECK(reply.size() == replyBytes);
    sendAll(outside, reply.data(), reply.size(), inGoodTime());
    rank.join();
    return inside;
  };
  const UniqueFd admitted = relayOnce([](std::string&) {});
  CHECK(door.lets(1));
  CHECK_FALSE(isClosed(admitted));

  const UniqueFd thief = connectTo(door.address);
  CHECK(receive(thief, greetingBytes).size() == greetingBytes);
  sendAll(thief, hello.data(), hello.size(), inGoodTime());
  CHECK(receive(thief, replyBytes).size() == replyBytes);  // the refusal
  CHECK(receive(thief, 1) == "");                          // and no more
  CHECK(isClosed(thief));

  // Any changed bit of what the proof covers: here the rank, the host hash and the listening port.
  for (std::size_t place : {20u, 32u, 42u}) {
    CAPTURE(place);
    const UniqueFd changed = relayOnce([&](std::string& bytes) { bytes[place] = static_cast<char>(bytes[place] ^ 1); });
    CHECK(receive(changed, 1) == "");
    CHECK(isClosed(changed));
  }
  CHECK(door.guests() == 1);
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
      connectAndIntroduce(address, key, introductionOf(1), inGoodTime(), [] {});
    } catch (const Error& error) {
      text = error.what();
    }
  });
  UniqueFd socket;
  while (!socket) socket = acceptFrom(listener);
  std::string greeting(greetingBytes, '\0');
  std::memcpy(greeting.data(), "msc++cp1\1\0\0\0", 12);
  sendAll(socket, greeting.data(), greeting.size(), inGoodTime());
  receive(socket, helloBytes);
  std::string reply(replyBytes, '\0');
  std::memcpy(reply.data(), "msc++cp1\1\0\0\0", 12);
  sendAll(socket, reply.data(), reply.size(), inGoodTime());
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
      sendAll(socket, text.data(), text.size(), inGoodTime());
      open.push_back(std::move(socket));
    }
  });
  CHECK_THROWS_WITH_AS(
      connectAndIntroduce(address, keyFromSecret(makeSecret()), introductionOf(1), inGoodTime(), [] {}),
      doctest::Contains("is not this version of mscclpp"), Error);
  done = true;
  server.join();
}

TEST_CASE("more strangers than there is room for push each other out, and a rank still gets in") {
  const Key key = keyFromSecret(makeSecret());
  Door door(key);
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 400; ++i) crowd.push_back(connectTo(door.address));
  const UniqueFd rank = connectAndIntroduce(door.address, key, introductionOf(1), inGoodTime(), [] {});
  CHECK(door.lets(1));
  int dropped = 0;
  for (const auto& stranger : crowd) {
    receive(stranger, greetingBytes);
    dropped += isClosed(stranger) ? 1 : 0;
  }
  CHECK(dropped >= 200);
  CHECK(dropped < 400);
}

TEST_CASE("who dribbles its words is shown out in time") {
  const Key key = keyFromSecret(makeSecret());
  Door door(key);
  const UniqueFd slow = connectTo(door.address);
  CHECK(receive(slow, greetingBytes).size() == greetingBytes);
  const std::string words = "msc++cp1" + std::string(helloBytes - 8, '\0');
  const Deadline deadline = Deadline::after(15s);
  for (std::size_t i = 0; i < words.size() && !isClosed(slow) && !deadline.expired(); ++i) {
    ::send(slow.get(), &words[i], 1, MSG_NOSIGNAL);
    std::this_thread::sleep_for(150ms);
  }
  CHECK(isClosed(slow));
  CHECK_FALSE(deadline.expired());
  CHECK(door.guests() == 0);
}

TEST_CASE("a rank that the job does not have is refused, and told so") {
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
  const UniqueFd ninth =
      connectAndIntroduce(rendezvous.address, keyFromSecret(rendezvous.secret), introductionOf(9), inGoodTime(), [] {});
  host.join();
  CHECK(outcome.find("somebody joined as rank 9") != std::string::npos);
}
