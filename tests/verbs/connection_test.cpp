// Writes and signals over verbs, in the guest of tests/guest/.
#include <doctest/doctest.h>

#include <cstring>

#include "link.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/ib_devices.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

TEST_CASE("writes of any size and alignment arrive whole, and nothing beside them changes") {
  Link link;
  constexpr std::size_t room = 3 << 20;
  Bytes source = randomBytes(room, 1);
  Bytes target(room, 0xa5);
  const auto from = link.a.share(source);
  const auto owned = link.b.share(target);
  const auto to = travelled(owned);
  Bytes expected = target;
  std::size_t offset = 3;
  for (const std::size_t size : {1, 2, 7, 8, 63, 219, 220, 221, 222, 1023, 4096, 4097, 65536, 1 << 20, (1 << 20) + 5}) {
    link.a.connection.write(to, offset + 1, from, offset, size);
    std::memcpy(expected.data() + offset + 1, source.data() + offset, size);
    offset += size + 13;
  }
  link.a.connection.write(to, 0, from, 0, 0);
  link.a.connection.flush();
  CHECK(target == expected);
  CHECK(link.a.connection.completed() == link.a.connection.issued());
  CHECK(link.a.connection.transport() == Transport::IB0);
  CHECK(link.a.connection.remoteTransport() == Transport::IB1);
}

TEST_CASE("signals add up, by atomics and by immediate") {
  for (const auto mode : {Ib::Mode::Host, Ib::Mode::HostNoAtomic}) {
    CAPTURE(static_cast<int>(mode));
    Link link(withMode(mode), withMode(mode));
    std::vector<std::uint64_t> words(64, 0);
    words[9] = 1000;
    const auto owned = link.b.share(words);
    const auto to = travelled(owned);
    std::uint64_t one = 0;
    std::uint64_t nine = 1000;
    std::uint64_t last = 0;
    for (std::uint64_t i = 1; i <= 100; ++i) link.a.connection.updateAndSync(to, 8, &one, i);
    // Numbers of one piece, several pieces, and backwards.
    for (const std::uint64_t value : {1001ULL, (1ULL << 18) + 1001, (1ULL << 40) + 3, ~0ULL, 17ULL}) {
      link.a.connection.updateAndSync(to, 72, &nine, value);
    }
    link.a.connection.updateAndSync(to, 504, &last, 5);
    link.a.connection.flush();
    CHECK(arrives(words[63], 5));
    CHECK(words[1] == 100);
    CHECK(words[9] == 17);
    CHECK(one == 100);
    words[1] = words[9] = words[63] = 0;
    CHECK(words == std::vector<std::uint64_t>(64, 0));
  }
}

TEST_CASE("both sides agree on immediates if one of them wants no atomics") {
  for (const bool first : {true, false}) {
    Link link(withMode(first ? Ib::Mode::HostNoAtomic : Ib::Mode::Default),
              withMode(first ? Ib::Mode::Default : Ib::Mode::HostNoAtomic));
    std::vector<std::uint64_t> wordsA(8, 0);
    std::vector<std::uint64_t> wordsB(8, 0);
    const auto ownedA = link.a.share(wordsA);
    const auto ownedB = link.b.share(wordsB);
    std::uint64_t sentA = 0;
    std::uint64_t sentB = 0;
    link.a.connection.updateAndSync(travelled(ownedB), 0, &sentA, 3);
    link.b.connection.updateAndSync(travelled(ownedA), 8, &sentB, 4);
    CHECK(arrives(wordsB[0], 3));
    CHECK(arrives(wordsA[1], 4));
  }
}

TEST_CASE("more words than the immediate has indices can be signalled") {
  Link link(withMode(Ib::Mode::HostNoAtomic));
  constexpr std::uint64_t count = 4096 + 50;
  std::vector<std::uint64_t> words(count, 0);
  const auto owned = link.b.share(words);
  const auto to = travelled(owned);
  std::vector<std::uint64_t> sent(count, 0);
  for (std::uint64_t round = 1; round <= 2; ++round) {
    for (std::uint64_t i = 0; i < count; ++i) link.a.connection.updateAndSync(to, 8 * i, &sent[i], round * (i + 1));
  }
  for (std::uint64_t i = 0; i < count; ++i) REQUIRE(arrives(words[i], 2 * (i + 1)));
  for (std::uint64_t i = 0; i < count; ++i) REQUIRE(words[i] == 2 * (i + 1));
}

namespace {

// Ping-pong: each message is checked when its signal has been seen, and only then answered.
void pingPong(Link& link, std::size_t size, int rounds) {
  Bytes sendA(size);
  Bytes sendB(size);
  Bytes receiveA(size);
  Bytes receiveB(size);
  std::uint64_t wordA = 0;
  std::uint64_t wordB = 0;
  const auto ownSendA = link.a.share(sendA);
  const auto ownSendB = link.b.share(sendB);
  const auto ownReceiveA = link.a.share(receiveA);
  const auto ownReceiveB = link.b.share(receiveB);
  const auto ownWordA = link.a.share(&wordA, 8);
  const auto ownWordB = link.b.share(&wordB, 8);
  const auto play = [&](Connection& connection, Bytes& send, const RegisteredMemory& from, Bytes& receive,
                        std::uint64_t& word, const RegisteredMemory& to, const RegisteredMemory& toWord, bool starts,
                        std::string& problem) {
    try {
      std::uint64_t sent = 0;
      for (int round = 1; round <= rounds && problem.empty(); ++round) {
        const auto serve = [&] {
          std::memset(send.data(), round & 0xff, size);
          connection.write(to, 0, from, 0, size);
          connection.updateAndSync(toWord, 0, &sent, static_cast<std::uint64_t>(round));
          connection.flush();  // the buffer is written again
        };
        if (starts) serve();
        if (!arrives(word, static_cast<std::uint64_t>(round))) problem = "no signal " + std::to_string(round);
        if (receive != Bytes(size, static_cast<unsigned char>(round)))
          problem = "wrong data in " + std::to_string(round);
        if (!starts) serve();
      }
    } catch (const std::exception& error) {
      problem = error.what();
    }
  };
  std::string problemA;
  std::string problemB;
  std::thread other([&, toA = travelled(ownReceiveA), toWordA = travelled(ownWordA)] {
    play(link.b.connection, sendB, ownSendB, receiveB, wordB, toA, toWordA, false, problemB);
  });
  play(link.a.connection, sendA, ownSendA, receiveA, wordA, travelled(ownReceiveB), travelled(ownWordB), true,
       problemA);
  other.join();
  CHECK(problemA == "");
  CHECK(problemB == "");
}

}  // namespace

TEST_CASE("a signal comes after the data that was written before it") {
  for (const auto mode : {Ib::Mode::Host, Ib::Mode::HostNoAtomic}) {
    CAPTURE(static_cast<int>(mode));
    Link link(withMode(mode), withMode(mode));
    pingPong(link, 8, 200);
    pingPong(link, 30000, 50);
  }
}

TEST_CASE("large writes go over several queue pairs, and signals come after all parts") {
  for (const auto mode : {Ib::Mode::Host, Ib::Mode::HostNoAtomic}) {
    CAPTURE(static_cast<int>(mode));
    const auto config = with([&](EndpointConfig& c) {
      c.ib.queuePairs = 3;
      c.ib.mode = mode;
    });
    Link link(config, config);
    pingPong(link, 500001, 10);
  }
  Link uneven(with([](EndpointConfig& c) { c.ib.queuePairs = 4; }),
              with([](EndpointConfig& c) { c.ib.queuePairs = 2; }));
  pingPong(uneven, 300000, 5);
}

TEST_CASE("the queue's depth bounds what is under way, and nothing is lost when it is full") {
  for (const int depth : {1, 2, 5}) {
    CAPTURE(depth);
    Link link(with([&](EndpointConfig& c) { c.maxWriteQueueSize = depth; }));
    CHECK(link.a.connection.getMaxWriteQueueSize() == depth);
    constexpr std::size_t count = 500;
    std::vector<std::uint64_t> source(count);
    std::iota(source.begin(), source.end(), 1);
    std::vector<std::uint64_t> target(count, 0);
    std::uint64_t word = 0;
    const auto from = link.a.share(source);
    const auto owned = link.b.share(target);
    const auto ownedWord = link.b.share(&word, 8);
    const auto to = travelled(owned);
    const auto toWord = travelled(ownedWord);
    std::uint64_t sent = 0;
    for (std::size_t i = 0; i < count; ++i) {
      link.a.connection.write(to, 8 * i, from, 8 * i, 8);
      const auto underWay = link.a.connection.issued() - link.a.connection.completed();
      REQUIRE(underWay <= static_cast<std::uint64_t>(depth));
    }
    link.a.connection.updateAndSync(toWord, 0, &sent, 1);
    REQUIRE(arrives(word, 1));
    CHECK(target == source);
  }
}

TEST_CASE("what was issued and never flushed arrives although the connection ends") {
  for (const auto mode : {Ib::Mode::Host, Ib::Mode::HostNoAtomic}) {
    CAPTURE(static_cast<int>(mode));
    Link link(withMode(mode), withMode(mode));
    Bytes source = randomBytes(4 << 20, 7);
    Bytes target(source.size());
    std::uint64_t word = 0;
    const auto from = link.a.share(source);
    const auto owned = link.b.share(target);
    const auto ownedWord = link.b.share(&word, 8);
    std::uint64_t sent = 0;
    link.a.connection.beginBatch();
    link.a.connection.write(travelled(owned), 0, from, 0, source.size());
    link.a.connection.updateAndSync(travelled(ownedWord), 0, &sent, 1);
    link.a.connection = Connection();
    REQUIRE(arrives(word, 1));
    CHECK(target == source);
  }
}

TEST_CASE("a flush that does not block") {
  Link link;
  Bytes source = randomBytes(1 << 20, 3);
  Bytes target(1 << 20);
  const auto from = link.a.share(source);
  const auto owned = link.b.share(target);
  const auto to = travelled(owned);
  link.a.connection.write(to, 0, from, 0, source.size());
  const std::uint64_t mark = link.a.connection.issued();
  CHECK(mark == 1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (link.a.connection.completed() < mark && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  CHECK(link.a.connection.completed() == mark);
  CHECK(target == source);
}
