// What goes wrong over verbs, in the guest of tests/guest/: lost packets, lost links, lost peers, misuse.
#include <doctest/doctest.h>
#include <signal.h>

#include <cstring>

#include "../host/spawned_ranks.hpp"
#include "link.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/ib_devices.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

// Gives up on a silent peer after half a second.
EndpointConfig impatient() {
  return with([](EndpointConfig& config) {
    config.ib.timeout = 14;
    config.ib.retryCount = 6;
  });
}

// What a stream of writes to a peer ends with.
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
  // No jitter: it reorders packets, of which a software device takes every second one for a loss.
  const Scoped loss("tc qdisc add dev eth0 root netem loss 1% delay 100us", "tc qdisc del dev eth0 root");
  for (const auto mode : {Ib::Mode::Host, Ib::Mode::HostNoAtomic}) {
    CAPTURE(static_cast<int>(mode));
    auto config = impatient();
    config.ib.mode = mode;
    Link link(config, config);
    constexpr std::size_t size = 20000;
    constexpr std::uint64_t rounds = 60;
    Bytes source = randomBytes(size * rounds, 5);
    Bytes target(source.size());
    std::uint64_t word = 0;
    const auto from = link.a.share(source);
    const auto owned = link.b.share(target);
    const auto ownedWord = link.b.share(&word, 8);
    const auto to = travelled(owned);
    const auto toWord = travelled(ownedWord);
    std::uint64_t sent = 0;
    for (std::uint64_t i = 0; i < rounds; ++i) {
      link.a.connection.write(to, i * size, from, i * size, size);
      link.a.connection.updateAndSync(toWord, 0, &sent, i + 1);
    }
    link.a.connection.flush(60000000);
    REQUIRE(arrives(word, rounds));
    CHECK(target == source);
    CHECK(word == rounds);
  }
  CHECK(std::system("tc -s qdisc show dev eth0 | grep -q 'dropped 0,'") != 0);
}

TEST_CASE("a link that is taken down in mid-transfer is a named error") {
  Link link(impatient(), impatient());
  Bytes source(65536);
  Bytes target(65536);
  const auto from = link.a.share(source);
  const auto owned = link.b.share(target);
  const Scoped restored("true", "ip link set port1 up; sleep 0.2");
  const auto start = std::chrono::steady_clock::now();
  const std::string failure =
      writesUntilFailure(link.a.connection, travelled(owned), from, [] { shell("ip link set port1 down"); });
  INFO(failure);
  CHECK(failure.find("rxe0") != std::string::npos);
  CHECK(failure.find("rxe1") != std::string::npos);
  CHECK(failure.find("process " + std::to_string(::getpid())) != std::string::npos);
  CHECK(failure.find("retry counter exceeded") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
  // It stays broken, and says so each time.
  CHECK_THROWS_WITH_AS(link.a.connection.flush(), doctest::Contains("retry counter exceeded"), Error);
  std::uint64_t word = 0;
  CHECK_THROWS_AS(link.a.connection.updateAndSync(travelled(owned), 0, &word, 1), Error);
}

// Rank 1 dies while rank 0 writes to it.
TEST_CASE("one rank of a dying peer" * doctest::skip()) {
  auto bootstrap = bootstrapOfProcess();
  const int rank = bootstrap->getRank();
  Communicator communicator(bootstrap);
  auto config = impatient();
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

TEST_CASE("a peer that is killed in mid-transfer is a named error") {
  runAsProcesses(2, "one rank of a dying peer", std::chrono::seconds(60), 1);
}

TEST_CASE("memory that the peer no longer offers is a named error") {
  Link link(impatient(), impatient());
  std::vector<std::uint64_t> source(8);
  std::vector<std::uint64_t> target(8);
  const auto from = link.a.share(source);
  RegisteredMemory to;
  {
    const auto owned = link.b.share(target);
    to = travelled(owned);
    link.a.connection.write(to, 0, from, 0, 64);
    link.a.connection.flush();
  }
  CHECK_THROWS_WITH_AS(
      [&] {
        link.a.connection.write(to, 0, from, 0, 64);
        link.a.connection.flush();
      }(),
      doctest::Contains("does not offer that memory"), Error);
}

TEST_CASE("without atomics a signal to memory that is gone is an error on both sides") {
  auto config = impatient();
  config.ib.mode = Ib::Mode::HostNoAtomic;
  Link link(config, config);
  std::vector<std::uint64_t> words(8);
  RegisteredMemory to;
  {
    const auto owned = link.b.share(words);
    to = travelled(owned);
  }
  std::uint64_t sent = 0;
  link.a.connection.updateAndSync(to, 0, &sent, 1);
  link.a.connection.flush();
  std::string failure;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (failure.empty() && std::chrono::steady_clock::now() < end) {
    try {
      Bytes probe(8);
      const auto from = link.b.share(probe);
      const auto target = link.a.share(probe);
      link.b.connection.write(travelled(target), 0, from, 0, 8);
      link.b.connection.flush();
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  CHECK(failure.find("not registered") != std::string::npos);
  CHECK(words == std::vector<std::uint64_t>(8));
  CHECK_THROWS_AS(
      [&] {
        link.a.connection.updateAndSync(to, 0, &sent, 2);
        link.a.connection.flush();
      }(),
      Error);
}

TEST_CASE("misuse is refused with a sentence that helps") {
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

  Link link;
  CHECK_THROWS_WITH_AS(link.a.context->connect(link.a.endpoint, Endpoint::deserialize(link.b.endpoint.serialize())),
                       doctest::Contains("one endpoint for each connection"), Error);
  const auto copy = Endpoint::deserialize(link.a.endpoint.serialize());
  CHECK_THROWS_AS(link.a.context->connect(copy, link.b.endpoint), Error);
  auto broken = link.b.endpoint.serialize();
  broken.resize(broken.size() - 1);
  CHECK_THROWS_AS(Endpoint::deserialize(broken), Error);

  std::vector<std::uint64_t> words(8);
  const auto onA = link.a.share(words);
  const auto onB = link.b.share(words);
  CHECK_THROWS_AS(link.a.connection.write(onA, 0, onA, 0, 8), Error);
  CHECK_THROWS_AS(link.a.connection.write(onB, 0, onB, 0, 8), Error);
  CHECK_THROWS_AS(link.a.connection.write(onB, 0, onA, 1, 64), Error);
  link.a.connection.write(onB, 0, onA, 0, 8);
  link.a.connection.flush();
}
