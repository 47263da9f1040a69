// Writes and signals over verbs, in the VM of tests/vm/.
#include <doctest/doctest.h>

#include <cstring>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/transport/ib_devices.hpp"
#include "verbs_pair.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

TEST_CASE("writes of any size and alignment arrive complete, and change no other memory") {
  VerbsPair pair;
  constexpr std::size_t room = 3 << 20;
  Bytes source = randomBytes(room, 1);
  Bytes target(room, 0xa5);
  const auto from = pair.a.registerMemory(source);
  const auto owned = pair.b.registerMemory(target);
  const auto to = remoteCopy(owned);
  Bytes expected = target;
  std::size_t offset = 3;
  for (const std::size_t size : {1, 2, 7, 8, 63, 219, 220, 221, 222, 1023, 4096, 4097, 65536, 1 << 20, (1 << 20) + 5}) {
    pair.a.connection.write(to, offset + 1, from, offset, size);
    std::memcpy(expected.data() + offset + 1, source.data() + offset, size);
    offset += size + 13;
  }
  pair.a.connection.write(to, 0, from, 0, 0);
  pair.a.connection.flush();
  CHECK(target == expected);
  CHECK(pair.a.connection.completed() == pair.a.connection.issued());
  CHECK(pair.a.connection.transport() == Transport::IB0);
  CHECK(pair.a.connection.remoteTransport() == Transport::IB1);
}

TEST_CASE("signals accumulate, by atomics and by immediate data") {
  for (const auto mode : {Ib::Mode::Host, Ib::Mode::HostNoAtomic}) {
    CAPTURE(static_cast<int>(mode));
    VerbsPair pair(withMode(mode), withMode(mode));
    std::vector<std::uint64_t> words(64, 0);
    words[9] = 1000;
    const auto owned = pair.b.registerMemory(words);
    const auto to = remoteCopy(owned);
    std::uint64_t one = 0;
    std::uint64_t nine = 1000;
    std::uint64_t last = 0;
    for (std::uint64_t i = 1; i <= 100; ++i) pair.a.connection.updateAndSync(to, 8, &one, i);
    // Values of one fragment, of several fragments, and decreasing.
    for (const std::uint64_t value : {1001ULL, (1ULL << 18) + 1001, (1ULL << 40) + 3, ~0ULL, 17ULL}) {
      pair.a.connection.updateAndSync(to, 72, &nine, value);
    }
    pair.a.connection.updateAndSync(to, 504, &last, 5);
    pair.a.connection.flush();
    CHECK(waitForWord(words[63], 5));
    CHECK(words[1] == 100);
    CHECK(words[9] == 17);
    CHECK(one == 100);
    words[1] = words[9] = words[63] = 0;
    CHECK(words == std::vector<std::uint64_t>(64, 0));
  }
}

TEST_CASE("both sides use immediate data if either disables atomics") {
  for (const bool first : {true, false}) {
    VerbsPair pair(withMode(first ? Ib::Mode::HostNoAtomic : Ib::Mode::Default),
                   withMode(first ? Ib::Mode::Default : Ib::Mode::HostNoAtomic));
    std::vector<std::uint64_t> wordsA(8, 0);
    std::vector<std::uint64_t> wordsB(8, 0);
    const auto ownedA = pair.a.registerMemory(wordsA);
    const auto ownedB = pair.b.registerMemory(wordsB);
    std::uint64_t sentA = 0;
    std::uint64_t sentB = 0;
    pair.a.connection.updateAndSync(remoteCopy(ownedB), 0, &sentA, 3);
    pair.b.connection.updateAndSync(remoteCopy(ownedA), 8, &sentB, 4);
    CHECK(waitForWord(wordsB[0], 3));
    CHECK(waitForWord(wordsA[1], 4));
  }
}

TEST_CASE("more words can be signalled than immediate data has indices for") {
  VerbsPair pair(withMode(Ib::Mode::HostNoAtomic));
  constexpr std::uint64_t count = 4096 + 50;
  std::vector<std::uint64_t> words(count, 0);
  const auto owned = pair.b.registerMemory(words);
  const auto to = remoteCopy(owned);
  std::vector<std::uint64_t> sent(count, 0);
  for (std::uint64_t round = 1; round <= 2; ++round) {
    for (std::uint64_t i = 0; i < count; ++i) pair.a.connection.updateAndSync(to, 8 * i, &sent[i], round * (i + 1));
  }
  std::uint64_t right = 0;
  while (right < count && waitForWord(words[right], 2 * (right + 1))) ++right;
  REQUIRE(right == count);
  for (std::uint64_t i = 0; i < count; ++i) words[i] -= 2 * (i + 1);
  CHECK(words == std::vector<std::uint64_t>(count, 0));
}

namespace {

// Ping-pong: each message is checked once its signal has arrived, and only then returned.
void pingPong(VerbsPair& pair, std::size_t size, int rounds) {
  Bytes sendA(size);
  Bytes sendB(size);
  Bytes receiveA(size);
  Bytes receiveB(size);
  std::uint64_t wordA = 0;
  std::uint64_t wordB = 0;
  const auto ownSendA = pair.a.registerMemory(sendA);
  const auto ownSendB = pair.b.registerMemory(sendB);
  const auto ownReceiveA = pair.a.registerMemory(receiveA);
  const auto ownReceiveB = pair.b.registerMemory(receiveB);
  const auto ownWordA = pair.a.registerMemory(&wordA, 8);
  const auto ownWordB = pair.b.registerMemory(&wordB, 8);
  enum class Turn { First, Second };
  struct Player {
    Connection& connection;
    Bytes& send;
    const RegisteredMemory& from;
    Bytes& receive;
    std::uint64_t& word;
    RegisteredMemory to;
    RegisteredMemory toWord;
    Turn turn;
    std::string problem = {};
  };
  const auto play = [&](Player& player) {
    try {
      std::uint64_t sent = 0;
      for (int round = 1; round <= rounds && player.problem.empty(); ++round) {
        const auto serve = [&] {
          std::memset(player.send.data(), round & 0xff, size);
          player.connection.write(player.to, 0, player.from, 0, size);
          player.connection.updateAndSync(player.toWord, 0, &sent, static_cast<std::uint64_t>(round));
          player.connection.flush();  // the buffer is overwritten next
        };
        if (player.turn == Turn::First) serve();
        if (!waitForWord(player.word, static_cast<std::uint64_t>(round)))
          player.problem = "no signal " + std::to_string(round);
        if (player.receive != Bytes(size, static_cast<unsigned char>(round)))
          player.problem = "wrong data in " + std::to_string(round);
        if (player.turn == Turn::Second) serve();
      }
    } catch (const std::exception& error) {
      player.problem = error.what();
    }
  };
  Player first{.connection = pair.a.connection,
               .send = sendA,
               .from = ownSendA,
               .receive = receiveA,
               .word = wordA,
               .to = remoteCopy(ownReceiveB),
               .toWord = remoteCopy(ownWordB),
               .turn = Turn::First};
  Player second{.connection = pair.b.connection,
                .send = sendB,
                .from = ownSendB,
                .receive = receiveB,
                .word = wordB,
                .to = remoteCopy(ownReceiveA),
                .toWord = remoteCopy(ownWordA),
                .turn = Turn::Second};
  std::thread other([&] { play(second); });
  play(first);
  other.join();
  CHECK(first.problem == "");
  CHECK(second.problem == "");
}

}  // namespace

TEST_CASE("a signal arrives after the data written before it") {
  for (const auto mode : {Ib::Mode::Host, Ib::Mode::HostNoAtomic}) {
    CAPTURE(static_cast<int>(mode));
    VerbsPair pair(withMode(mode), withMode(mode));
    pingPong(pair, 8, 50);
    pingPong(pair, 30000, 15);
  }
}

TEST_CASE("large writes are striped across several queue pairs, and signals arrive after all parts") {
  for (const auto mode : {Ib::Mode::Host, Ib::Mode::HostNoAtomic}) {
    CAPTURE(static_cast<int>(mode));
    const auto config = with([&](EndpointConfig& c) {
      c.ib.queuePairs = 3;
      c.ib.mode = mode;
    });
    VerbsPair pair(config, config);
    pingPong(pair, 500001, 10);
  }
  VerbsPair uneven(with([](EndpointConfig& c) { c.ib.queuePairs = 4; }),
                   with([](EndpointConfig& c) { c.ib.queuePairs = 2; }));
  pingPong(uneven, 300000, 5);
}

TEST_CASE("the queue depth limits outstanding operations, and none is lost when it is full") {
  for (const int depth : {1, 2, 5}) {
    CAPTURE(depth);
    VerbsPair pair(with([&](EndpointConfig& c) { c.maxWriteQueueSize = depth; }));
    CHECK(pair.a.connection.getMaxWriteQueueSize() == depth);
    constexpr std::size_t count = 500;
    std::vector<std::uint64_t> source(count);
    std::iota(source.begin(), source.end(), 1);
    std::vector<std::uint64_t> target(count, 0);
    std::uint64_t word = 0;
    const auto from = pair.a.registerMemory(source);
    const auto owned = pair.b.registerMemory(target);
    const auto ownedWord = pair.b.registerMemory(&word, 8);
    const auto to = remoteCopy(owned);
    const auto toWord = remoteCopy(ownedWord);
    std::uint64_t sent = 0;
    for (std::size_t i = 0; i < count; ++i) {
      pair.a.connection.write(to, 8 * i, from, 8 * i, 8);
      const auto underWay = pair.a.connection.issued() - pair.a.connection.completed();
      REQUIRE(underWay <= static_cast<std::uint64_t>(depth));
    }
    pair.a.connection.updateAndSync(toWord, 0, &sent, 1);
    REQUIRE(waitForWord(word, 1));
    CHECK(target == source);
  }
}

TEST_CASE("operations that were issued but not flushed arrive although the connection ends") {
  for (const auto mode : {Ib::Mode::Host, Ib::Mode::HostNoAtomic}) {
    CAPTURE(static_cast<int>(mode));
    VerbsPair pair(withMode(mode), withMode(mode));
    // Hundreds of packets. An emulated VM on a busy machine must send them within the time that a connection that ends
    // waits for its operations, 5 s.
    Bytes source = randomBytes(256 << 10, 7);
    Bytes target(source.size());
    std::uint64_t word = 0;
    const auto from = pair.a.registerMemory(source);
    const auto owned = pair.b.registerMemory(target);
    const auto ownedWord = pair.b.registerMemory(&word, 8);
    std::uint64_t sent = 0;
    pair.a.connection.beginBatch();
    pair.a.connection.write(remoteCopy(owned), 0, from, 0, source.size());
    pair.a.connection.updateAndSync(remoteCopy(ownedWord), 0, &sent, 1);
    pair.a.connection = Connection();
    REQUIRE(waitForWord(word, 1));
    CHECK(target == source);
  }
}

TEST_CASE("a flush that does not block") {
  VerbsPair pair;
  Bytes source = randomBytes(1 << 20, 3);
  Bytes target(1 << 20);
  const auto from = pair.a.registerMemory(source);
  const auto owned = pair.b.registerMemory(target);
  const auto to = remoteCopy(owned);
  pair.a.connection.write(to, 0, from, 0, source.size());
  const std::uint64_t mark = pair.a.connection.issued();
  CHECK(mark == 1);
  const auto end = std::chrono::steady_clock::now() + waitLimit;
  while (pair.a.connection.completed() < mark && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  CHECK(pair.a.connection.completed() == mark);
  CHECK(target == source);
}
