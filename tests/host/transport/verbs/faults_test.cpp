// Faults over verbs, in the VM of tests/vm/: lost packets, links that go down, killed peers, invalid usage.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/transport/ib_devices.hpp"
#include "tests/host/spawned_ranks.hpp"
#include "verbs_pair.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

// Times out after half a second without a response.
EndpointConfig shortTimeouts() {
  return with([](EndpointConfig& config) {
    config.ib.timeout = 14;
    config.ib.retryCount = 6;
  });
}

// Writes to a peer until a call fails. Returns the error message.
std::string writesUntilFailure(Connection& connection, const RegisteredMemory& to, const RegisteredMemory& from,
                               const std::function<void()>& meanwhile) {
  try {
    for (int i = 0; i < 100000; ++i) {
      connection.write(to, 0, from, 0, from.size());
      if (i == 20) meanwhile();
    }
    connection.flush();
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::RemoteError);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("data and signals survive lost and delayed packets") {
  // No jitter: it reorders packets, and a software device treats every second reordered packet as lost.
  const ScopedCommand loss("tc qdisc add dev eth0 root netem loss 1% delay 100us", "tc qdisc del dev eth0 root");
  for (const auto mode : {Ib::Mode::Host, Ib::Mode::HostNoAtomic}) {
    CAPTURE(static_cast<int>(mode));
    auto config = shortTimeouts();
    config.ib.mode = mode;
    VerbsPair pair(config, config);
    constexpr std::size_t size = 20000;
    constexpr std::uint64_t rounds = 60;
    Bytes source = randomBytes(size * rounds, 5);
    Bytes target(source.size());
    std::uint64_t word = 0;
    const auto from = pair.a.registerMemory(source);
    const auto owned = pair.b.registerMemory(target);
    const auto ownedWord = pair.b.registerMemory(&word, 8);
    const auto to = remoteCopy(owned);
    const auto toWord = remoteCopy(ownedWord);
    std::uint64_t sent = 0;
    for (std::uint64_t i = 0; i < rounds; ++i) {
      pair.a.connection.write(to, i * size, from, i * size, size);
      pair.a.connection.updateAndSync(toWord, 0, &sent, i + 1);
    }
    pair.a.connection.flush(60000000);
    REQUIRE(waitForWord(word, rounds));
    CHECK(target == source);
    CHECK(word == rounds);
  }
  CHECK(std::system("tc -s qdisc show dev eth0 | grep -q 'dropped 0,'") != 0);
}

TEST_CASE("a link that goes down in mid-transfer is an error that names both devices") {
  VerbsPair pair(shortTimeouts(), shortTimeouts());
  Bytes source(65536);
  Bytes target(65536);
  const auto from = pair.a.registerMemory(source);
  const auto owned = pair.b.registerMemory(target);
  const ScopedCommand restored("true", "ip link set port1 up; sleep 0.2");
  const auto start = std::chrono::steady_clock::now();
  const std::string failure =
      writesUntilFailure(pair.a.connection, remoteCopy(owned), from, [] { runShell("ip link set port1 down"); });
  INFO(failure);
  CHECK(failure.find("rxe0") != std::string::npos);
  CHECK(failure.find("rxe1") != std::string::npos);
  CHECK(failure.find("process " + std::to_string(::getpid())) != std::string::npos);
  CHECK(failure.find("retry counter exceeded") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - start < waitLimit);
  // It stays failed, and each call reports that.
  CHECK_THROWS_WITH_AS(pair.a.connection.flush(), doctest::Contains("retry counter exceeded"), Error);
  std::uint64_t word = 0;
  CHECK_THROWS_AS(pair.a.connection.updateAndSync(remoteCopy(owned), 0, &word, 1), Error);
}

TEST_CASE("a forked child that destroys its copies does not affect the parent's connection") {
  for (const auto mode : {Ib::Mode::Host, Ib::Mode::HostNoAtomic}) {
    auto pair = std::make_unique<VerbsPair>(withMode(mode), withMode(mode));
    Bytes source = randomBytes(65536, 9);
    Bytes target(source.size());
    std::uint64_t word = 0;
    auto from = pair->a.registerMemory(source);
    auto owned = pair->b.registerMemory(target);
    auto ownedWord = pair->b.registerMemory(&word, 8);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(static_cast<unsigned>(waitLimit.count()));
      ownedWord = owned = from = RegisteredMemory();
      pair.reset();
      ::_exit(0);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    std::uint64_t sent = 0;
    pair->a.connection.write(remoteCopy(owned), 0, from, 0, source.size());
    pair->a.connection.updateAndSync(remoteCopy(ownedWord), 0, &sent, 1);
    pair->a.connection.flush();
    REQUIRE(waitForWord(word, 1));
    CHECK(target == source);
  }
}

// Rank 1 is killed while rank 0 writes to it.
TEST_CASE("one rank with a killed peer" * doctest::skip()) {
  auto bootstrap = bootstrapOfProcess();
  const int rank = bootstrap->getRank();
  Communicator communicator(bootstrap);
  auto config = shortTimeouts();
  config.transport = rank == 0 ? Transport::IB0 : Transport::IB1;
  config.device = DeviceType::CPU;
  auto connection = communicator.connect(config, 1 - rank).get();
  Bytes buffer(65536);
  const auto memory = communicator.registerMemory(buffer.data(), buffer.size(), config.transport);
  communicator.sendMemory(memory, 1 - rank);
  const auto to = communicator.recvMemory(1 - rank).get();
  long peer = ::getpid();
  if (rank == 1) {
    bootstrap->send(&peer, sizeof(peer), 0, 7);
    while (true) ::pause();
  }
  bootstrap->recv(&peer, sizeof(peer), 1, 7);
  const std::string failure =
      writesUntilFailure(connection, to, memory, [&] { ::kill(static_cast<pid_t>(peer), SIGKILL); });
  INFO(failure);
  CHECK(failure.find("process " + std::to_string(peer)) != std::string::npos);
  CHECK(failure.find("rxe1") != std::string::npos);
}

TEST_CASE("a peer that is killed in mid-transfer is an error that names it") {
  runAsProcesses(2, "one rank with a killed peer", hangLimit, 1);
}

TEST_CASE("a write to memory that the peer has deregistered is an error") {
  VerbsPair pair(shortTimeouts(), shortTimeouts());
  std::vector<std::uint64_t> source(8);
  std::vector<std::uint64_t> target(8);
  const auto from = pair.a.registerMemory(source);
  RegisteredMemory to;
  {
    const auto owned = pair.b.registerMemory(target);
    to = remoteCopy(owned);
    pair.a.connection.write(to, 0, from, 0, 64);
    pair.a.connection.flush();
  }
  CHECK_THROWS_WITH_AS(
      [&] {
        pair.a.connection.write(to, 0, from, 0, 64);
        pair.a.connection.flush();
      }(),
      doctest::Contains("does not offer that memory"), Error);
}

TEST_CASE("without atomics a signal to deregistered memory is an error on both sides") {
  auto config = shortTimeouts();
  config.ib.mode = Ib::Mode::HostNoAtomic;
  VerbsPair pair(config, config);
  std::vector<std::uint64_t> words(8);
  RegisteredMemory to;
  {
    const auto owned = pair.b.registerMemory(words);
    to = remoteCopy(owned);
  }
  std::uint64_t sent = 0;
  pair.a.connection.updateAndSync(to, 0, &sent, 1);
  pair.a.connection.flush();
  std::string failure;
  const auto end = std::chrono::steady_clock::now() + waitLimit;
  while (failure.empty() && std::chrono::steady_clock::now() < end) {
    try {
      Bytes probe(8);
      const auto from = pair.b.registerMemory(probe);
      const auto target = pair.a.registerMemory(probe);
      pair.b.connection.write(remoteCopy(target), 0, from, 0, 8);
      pair.b.connection.flush();
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  CHECK(failure.find("not registered") != std::string::npos);
  CHECK(words == std::vector<std::uint64_t>(8));
  CHECK_THROWS_AS(
      [&] {
        pair.a.connection.updateAndSync(to, 0, &sent, 2);
        pair.a.connection.flush();
      }(),
      Error);
}

TEST_CASE("invalid usage is rejected with a clear error message") {
  auto context = Context::create();
  const auto refused = [&](const std::function<void(EndpointConfig&)>& change) {
    EndpointConfig config(Transport::IB0, DeviceType::CPU);
    change(config);
    try {
      context->createEndpoint(config);
    } catch (const Error& error) {
      CHECK(error.getErrorCode() == ErrorCode::InvalidUsage);
      return std::string(error.what());
    }
    return std::string();
  };
  using Config = EndpointConfig;
  CHECK(refused([](Config& c) { c.ib.port = 2; }).find("has no port 2: its ports are 1 to 1") != std::string::npos);
  CHECK(refused([](Config& c) { c.ib.port = 0; }).find("port is 0; allowed is 1 to 255") != std::string::npos);
  CHECK(refused([](Config& c) { c.ib.gidIndex = 200; }).find("has no GID 200; it has 0 (") != std::string::npos);
  CHECK(refused([](Config& c) { c.ib.sl = 16; }).find("sl is 16; allowed is 0 to 15") != std::string::npos);
  CHECK(refused([](Config& c) { c.ib.trafficClass = -1; }).find("trafficClass") != std::string::npos);
  CHECK(refused([](Config& c) { c.ib.pkeyIndex = 1 << 16; }).find("pkeyIndex") != std::string::npos);
  CHECK(refused([](Config& c) { c.ib.queuePairs = 17; }).find("queuePairs") != std::string::npos);
  CHECK(refused([](Config& c) { c.ib.timeout = 0; }).find("timeout") != std::string::npos);
  CHECK(refused([](Config& c) { c.ib.retryCount = 8; }).find("retryCount") != std::string::npos);
  CHECK(refused([](Config& c) { c.ib.maxSendWr = 0; }).find("maxSendWr") != std::string::npos);
  CHECK(refused([](Config& c) { c.ib.deviceIndex = 1; }).find("deviceIndex") != std::string::npos);
  CHECK(refused([](Config& c) { c.maxWriteQueueSize = 0; }).find("maxWriteQueueSize") != std::string::npos);
  CHECK(refused([](Config& c) { c.transport = Transport::IB7; }).find("no verbs device for IB7") != std::string::npos);
  CHECK(refused([](Config&) {}) == "");

  VerbsPair pair;
  CHECK_THROWS_WITH_AS(pair.a.context->connect(pair.a.endpoint, Endpoint::deserialize(pair.b.endpoint.serialize())),
                       doctest::Contains("one endpoint for each connection"), Error);
  const auto copy = Endpoint::deserialize(pair.a.endpoint.serialize());
  CHECK_THROWS_AS(pair.a.context->connect(copy, pair.b.endpoint), Error);
  auto broken = pair.b.endpoint.serialize();
  broken.resize(broken.size() - 1);
  CHECK_THROWS_AS(Endpoint::deserialize(broken), Error);

  std::vector<std::uint64_t> words(8);
  const auto onA = pair.a.registerMemory(words);
  const auto onB = pair.b.registerMemory(words);
  CHECK_THROWS_AS(pair.a.connection.write(onA, 0, onA, 0, 8), Error);
  CHECK_THROWS_AS(pair.a.connection.write(onB, 0, onB, 0, 8), Error);
  CHECK_THROWS_AS(pair.a.connection.write(onB, 0, onA, 1, 64), Error);
  pair.a.connection.write(onB, 0, onA, 0, 8);
  pair.a.connection.flush();
}
