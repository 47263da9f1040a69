// TcpBootstrap without faults: messages, tags, collectives, and errors for invalid usage.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/host/ranks.hpp"

using namespace mscclpp;
using namespace std::chrono_literals;
using test::onProcesses;
using test::onThreads;
using test::thinned;

namespace {

// Set before the library reads it. These ranks do not fail, however long a sanitizer on a busy machine copies a large
// message.
[[maybe_unused]] const bool heartbeatTimeoutSet = ::setenv("MSCCLPP_HEARTBEAT_TIMEOUT", "60", 1) == 0;

void requireSuccess(const test::Outcomes& outcomes) {
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    INFO("rank ", rank);
    CHECK(outcomes[rank] == "");
  }
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("expected: " + what);
}

// Bytes in which no two nearby positions are equal.
std::vector<char> pattern(int size, int seed) {
  std::vector<std::uint64_t> words(size / 8 + 1);
  std::uint64_t state = static_cast<std::uint64_t>(seed) + 1;
  for (auto& word : words) word = state = state * 6364136223846793005u + 1442695040888963407u;
  std::vector<char> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

// Every operation once, with contents that depend on the ranks.
void exercise(TcpBootstrap& bootstrap) {
  const int rank = bootstrap.getRank(), n = bootstrap.getNranks();
  expect(bootstrap.getNranksPerNode() == n, "all ranks on one node");
  expect(bootstrap.getNranksPerIpcDomain() == n, "all ranks in one domain");

  std::vector<int> gathered(n, -1);
  gathered[rank] = rank * 3 + 1;
  bootstrap.allGather(gathered.data(), sizeof(int));
  for (int i = 0; i < n; ++i) expect(gathered[i] == i * 3 + 1, "allGather's slot " + std::to_string(i));

  for (int root = 0; root < n; ++root) {
    std::vector<char> bytes(1000, static_cast<char>(rank == root ? root + 7 : 0));
    bootstrap.broadcast(bytes.data(), static_cast<int>(bytes.size()), root);
    expect(std::all_of(bytes.begin(), bytes.end(), [&](char c) { return c == root + 7; }), "broadcast");
  }
  bootstrap.barrier();

  const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
  for (int tag : {5, 0, 9}) {
    int value = rank * 100 + tag;
    bootstrap.send(&value, sizeof(value), next, tag);
  }
  for (int tag : {9, 5, 0}) {
    int value = -1;
    bootstrap.recv(&value, sizeof(value), previous, tag);
    expect(value == previous * 100 + tag, "the message of tag " + std::to_string(tag));
  }
  bootstrap.send(nullptr, 0, next, 1);
  bootstrap.recv(nullptr, 0, previous, 1);
}

}  // namespace

TEST_CASE("ranks on threads exchange messages by every operation") {
  for (int n : {1, 2, 3, 5, 8}) {
    CAPTURE(n);
    const UniqueId id = TcpBootstrap::createUniqueId();
    requireSuccess(onThreads(n, [&](int rank) {
      TcpBootstrap bootstrap(rank, n);
      bootstrap.initialize(id);
      exercise(bootstrap);
    }));
  }
}

TEST_CASE("ranks in processes exchange messages by every operation") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  requireSuccess(onProcesses(4, [&](int rank) {
    TcpBootstrap bootstrap(rank, 4);
    bootstrap.initialize(id);
    exercise(bootstrap);
  }));
}

TEST_CASE("a rendezvous can be an address") {
  for (std::string host : {"127.0.0.1", "lo:127.0.0.1", "[::1]", "lo:[::1]", "localhost"}) {
    const std::string address = host + ':' + std::to_string(test::freePort());
    CAPTURE(address);
    requireSuccess(onThreads(3, [&](int rank) {
      // Rank 0 starts last: at first the others find no listener.
      if (rank == 0) std::this_thread::sleep_for(100ms);
      TcpBootstrap bootstrap(rank, 3);
      bootstrap.initialize(address);
      exercise(bootstrap);
      expect(bootstrap.getUniqueId() != UniqueId{}, "a token for the address");
    }));
  }
}

TEST_CASE("a UniqueId from getUniqueId describes the same rendezvous as the address") {
  const std::string address = "127.0.0.1:" + std::to_string(test::freePort());
  std::vector<UniqueId> ids(2);
  requireSuccess(onThreads(2, [&](int rank) {
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(address);
    ids[rank] = bootstrap.getUniqueId();
  }));
  CHECK(ids[0] == ids[1]);
  requireSuccess(onThreads(2, [&](int rank) {
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(ids[0]);
    exercise(bootstrap);
  }));
}

TEST_CASE("several bootstraps exist at once, and one after another") {
  const std::vector<UniqueId> ids = {TcpBootstrap::createUniqueId(), TcpBootstrap::createUniqueId(),
                                     TcpBootstrap::createUniqueId()};
  CHECK(ids[0] != ids[1]);
  requireSuccess(onThreads(2, [&](int rank) {
    std::vector<std::unique_ptr<TcpBootstrap>> bootstraps;
    for (const UniqueId& id : ids) {
      bootstraps.push_back(std::make_unique<TcpBootstrap>(rank, 2));
      bootstraps.back()->initialize(id);
    }
    for (auto& bootstrap : bootstraps) exercise(*bootstrap);
    bootstraps.erase(bootstraps.begin() + 1);
    for (auto& bootstrap : bootstraps) exercise(*bootstrap);
  }));
  for (int round = 0; round < 20; ++round) {
    const UniqueId id = TcpBootstrap::createUniqueId();
    requireSuccess(onThreads(3, [&](int rank) {
      TcpBootstrap bootstrap(rank, 3);
      bootstrap.initialize(id);
      bootstrap.barrier();
    }));
  }
}

TEST_CASE("UniqueIds may be created and never used") {
  for (int i = 0; i < 200; ++i) TcpBootstrap::createUniqueId();
}

TEST_CASE("a rank sends to itself, before or after it receives from others") {
  TcpBootstrap bootstrap(0, 1);
  bootstrap.initialize(TcpBootstrap::createUniqueId());
  for (int value : {1, 2, 3}) bootstrap.send(&value, sizeof(value), 0, 4);
  for (int expected : {1, 2, 3}) {
    int value = 0;
    bootstrap.recv(&value, sizeof(value), 0, 4);
    CHECK(value == expected);
  }
  Bootstrap& base = bootstrap;
  base.send(std::vector<char>{'a', 'b'}, 0, 0);
  std::vector<char> received;
  base.recv(received, 0, 0);
  CHECK(received == std::vector<char>{'a', 'b'});
  bootstrap.groupBarrier({0});
}

TEST_CASE("messages of any size arrive complete, in both directions at once") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  requireSuccess(onThreads(2, [&](int rank) {
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(id);
    for (int size : thinned({0, 1, 15, 4096, 1 << 20, (64 << 20) + 3}, {0, 1, 15, 4096, (16 << 20) + 3})) {
      const std::vector<char> sent = pattern(size, rank);
      std::vector<char> received(size);
      bootstrap.send(const_cast<char*>(sent.data()), size, 1 - rank, 0);
      bootstrap.recv(received.data(), size, 1 - rank, 0);
      expect(received == pattern(size, 1 - rank), "the bytes of a message of " + std::to_string(size));
      Bootstrap& base = bootstrap;
      base.send(sent, 1 - rank, 3);
      base.recv(received, 1 - rank, 3);
      expect(received == pattern(size, 1 - rank), "the bytes of a vector of " + std::to_string(size));
    }
  }));
}

TEST_CASE("a sender far ahead of its receiver blocks, and no message is lost") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  requireSuccess(onThreads(2, [&](int rank) {
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(id);
    std::vector<char> block(8 << 20);
    for (int i = 0; i < 24; ++i) {
      block.assign(block.size(), static_cast<char>(i));
      if (rank == 0) bootstrap.send(block.data(), static_cast<int>(block.size()), 1, 0);
      if (rank == 1) {
        bootstrap.recv(block.data(), static_cast<int>(block.size()), 0, 0);
        expect(block.front() == i && block.back() == i, "block " + std::to_string(i));
      }
    }
    bootstrap.barrier();
  }));
}

TEST_CASE("threads of one rank use different tags at once") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  requireSuccess(onThreads(2, [&](int rank) {
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(id);
    requireSuccess(onThreads(4, [&](int tag) {
      for (int i = 0; i < 200; ++i) {
        int value = tag * 1000 + i;
        bootstrap.send(&value, sizeof(value), 1 - rank, tag);
        bootstrap.recv(&value, sizeof(value), 1 - rank, tag);
        expect(value == tag * 1000 + i, "order within a tag");
      }
    }));
  }));
}

TEST_CASE("groupBarrier blocks its members and does not interfere with the user's tag 0") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  std::atomic<int> arrived{0};
  requireSuccess(onThreads(4, [&](int rank) {
    TcpBootstrap bootstrap(rank, 4);
    bootstrap.initialize(id);
    if (rank != 2) {
      const std::vector<int> group = rank == 0 ? std::vector<int>{3, 0, 1} : std::vector<int>{0, 1, 3};
      int word = rank;
      if (rank == 1) bootstrap.send(&word, sizeof(word), 0, 0);
      if (rank == 3) std::this_thread::sleep_for(50ms);
      ++arrived;
      bootstrap.groupBarrier(group);
      expect(arrived == 3, "all members arrived");
      if (rank == 0) {
        bootstrap.recv(&word, sizeof(word), 1, 0);
        expect(word == 1, "the user's message of tag 0");
      }
    }
    bootstrap.barrier();
    if (rank == 0) {
      CHECK_THROWS_AS(bootstrap.groupBarrier({1, 2}), Error);
      CHECK_THROWS_AS(bootstrap.groupBarrier({0, 4}), Error);
    }
  }));
}

TEST_CASE("invalid usage is rejected with a clear message") {
  CHECK_THROWS_AS(TcpBootstrap(2, 2), Error);
  CHECK_THROWS_AS(TcpBootstrap(-1, 2), Error);
  CHECK_THROWS_AS(TcpBootstrap(0, 0), Error);
  CHECK_THROWS_WITH_AS(TcpBootstrap(0, 100'000'000), doctest::Contains("up to 65536 ranks"), Error);

  TcpBootstrap bootstrap(0, 1);
  int word = 0;
  CHECK_THROWS_WITH_AS(bootstrap.barrier(), "barrier: call initialize first (mscclpp failure: InvalidUsage)", Error);
  CHECK_THROWS_AS(bootstrap.getUniqueId(), Error);
  CHECK_THROWS_WITH_AS(bootstrap.initialize(UniqueId{}),
                       "invalid UniqueId: pass on all 128 bytes that TcpBootstrap::createUniqueId returned on rank 0 "
                       "(mscclpp failure: InvalidUsage)",
                       Error);
  UniqueId damaged = TcpBootstrap::createUniqueId();
  damaged[20] ^= 1;
  CHECK_THROWS_AS(bootstrap.initialize(damaged), Error);
  for (std::string address : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:12x",
                              "::1:80", ":127.0.0.1:80", "[::1:80", "0.0.0.0:80", "[::]:80", "nosuchname.invalid:80"}) {
    CAPTURE(address);
    CHECK_THROWS_AS(bootstrap.initialize(address), Error);
  }
  CHECK_THROWS_AS(bootstrap.initialize("nosuchif:127.0.0.1:41982", 0), Error);
  // A rendezvous that others can reach needs a secret.
  CHECK_THROWS_WITH_AS(bootstrap.initialize("192.0.2.1:4000"), doctest::Contains("MSCCLPP_SECRET"), Error);
  // Not an address of this host.
  {
    ::setenv("MSCCLPP_SECRET", "0123456789abcdef", 1);
    TcpBootstrap elsewhere(0, 2);
    CHECK_THROWS_WITH_AS(elsewhere.initialize("192.0.2.1:4000"), doctest::Contains("is not an address of this host"),
                         Error);
    ::setenv("MSCCLPP_SECRET", "short", 1);
    TcpBootstrap unsafe(0, 2);
    CHECK_THROWS_WITH_AS(unsafe.initialize("127.0.0.1:4000"), doctest::Contains("MSCCLPP_SECRET is too short"), Error);
    ::unsetenv("MSCCLPP_SECRET");
  }

  bootstrap.initialize(TcpBootstrap::createUniqueId());
  CHECK_THROWS_WITH_AS(bootstrap.initialize(TcpBootstrap::createUniqueId()), doctest::Contains("called before"), Error);
  CHECK_THROWS_WITH_AS(bootstrap.send(&word, -4, 0, 0),
                       "send: the size must not be negative, but it is -4 (mscclpp failure: InvalidUsage)", Error);
  CHECK_THROWS_AS(bootstrap.recv(&word, INT_MIN, 0, 0), Error);
  CHECK_THROWS_AS(bootstrap.send(nullptr, 4, 0, 0), Error);
  CHECK_THROWS_AS(bootstrap.send(&word, 4, 1, 0), Error);
  CHECK_THROWS_AS(bootstrap.recv(&word, 4, -1, 0), Error);
  CHECK_THROWS_AS(bootstrap.send(&word, 4, 0, -1), Error);
  CHECK_THROWS_AS(bootstrap.allGather(&word, -1), Error);
  CHECK_THROWS_AS(bootstrap.broadcast(&word, 4, 1), Error);
  CHECK_THROWS_AS(bootstrap.setTimeout(0ms), Error);
  bootstrap.send(&word, 4, 0, 0);
  long two = 0;
  CHECK_THROWS_WITH_AS(bootstrap.recv(&two, 8, 0, 0), doctest::Contains("sent 4 bytes where 8 were expected"), Error);
  // A length beyond the limit is rejected before memory is allocated for it.
  std::uint64_t monstrous = std::uint64_t{1} << 60;
  bootstrap.send(&monstrous, sizeof(monstrous), 0, 2);
  std::vector<char> bytes;
  CHECK_THROWS_WITH_AS(static_cast<Bootstrap&>(bootstrap).recv(bytes, 0, 2),
                       doctest::Contains("announced a vector of 1152921504606846976 bytes"), Error);
}

TEST_CASE("the error names a port that another job uses") {
  const std::string address = "127.0.0.1:" + std::to_string(test::freePort());
  std::atomic<bool> done{false};
  requireSuccess(onThreads(2, [&](int thread) {
    TcpBootstrap bootstrap(0, 2);
    if (thread == 0) {
      CHECK_THROWS_WITH_AS(bootstrap.initialize(address, 5), doctest::Contains("rank 1 of 2 is missing"), Error);
      done = true;
    } else {
      std::this_thread::sleep_for(1s);
      CHECK_THROWS_WITH_AS(bootstrap.initialize(address, 1), doctest::Contains("in use by another job"), Error);
      CHECK(!done);
    }
  }));
}
