// TCP between hosts, and those who do not play by the rules: hand-written peers, strangers at the port, a wrong key.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../../host/transport/tcp/handshake.hpp"
#include "../../host/transport/tcp/memory_name.hpp"
#include "../../host/transport/tcp/outbound.hpp"
#include "mscclpp/host/env.hpp"
#include "tcp_pair.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;
using namespace mscclpp::detail::tcp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

const EndpointConfig overTcp{Transport::Ethernet, DeviceType::CPU};
const Id128 nobody{};

// A serialised endpoint: header (16), transport and device (12), queue size (4), hashes (16), length (8), details.
constexpr std::size_t detailsOffset = 56;

EndpointDetails detailsOf(const Endpoint& endpoint) {
  const auto bytes = endpoint.serialize();
  EndpointDetails details;
  REQUIRE(bytes.size() == detailsOffset + sizeof(details));
  std::memcpy(&details, bytes.data() + detailsOffset, sizeof(details));
  return details;
}

Endpoint withDetails(const Endpoint& endpoint, const EndpointDetails& details) {
  auto bytes = endpoint.serialize();
  std::memcpy(bytes.data() + detailsOffset, &details, sizeof(details));
  return Endpoint::deserialize(bytes);
}

// The name of a registration: header (16), host (8), process (16), address, size (16), transports, count (8), handle.
Id128 nameOf(const RegisteredMemory& memory) {
  const auto bytes = memory.serialize();
  MemoryHandle handle;
  REQUIRE(bytes.size() == 64 + sizeof(handle));
  std::memcpy(&handle, bytes.data() + 64, sizeof(handle));
  REQUIRE(handle.kind == HandleKind::Tcp);
  return handle.allocation;
}

// Shows that a job goes on: data and a word, each way, over its own connections.
struct Job {
  TcpPair pair;
  std::array<GuardedMemory, 2> memories{GuardedMemory(*pair.contexts[0], 100'000),
                                        GuardedMemory(*pair.contexts[1], 100'000)};
  std::uint64_t rounds = 0;

  bool works() {
    ++rounds;
    for (unsigned side = 0; side < 2; ++side) {
      memories[side].fill(static_cast<unsigned>(rounds));
      auto& connection = pair.connections[side];
      std::uint64_t word = 0;
      connection.write(memories[1 - side].remote(), 8, memories[side].memory(), 0, 90'000);
      connection.updateAndSync(memories[1 - side].remote(), 0, &word, rounds);
      connection.flush();
      if (memories[1 - side].words()[0] != rounds) return false;
      if (std::memcmp(memories[1 - side].data() + 8, memories[side].data(), 90'000) != 0) return false;
    }
    return memories[0].guardsAreIntact() && memories[1].guardsAreIntact();
  }
};

UniqueFd knock(const SocketAddress& address) {
  int error = 0;
  return tryConnect(address, Deadline::after(5s), error);
}

bool isClosedSoon(const UniqueFd& socket, std::chrono::milliseconds limit) {
  std::array<char, 512> ignored;
  const Deadline deadline = Deadline::after(limit);
  while (!deadline.expired()) {
    const ssize_t count = ::recv(socket.get(), ignored.data(), ignored.size(), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno == ECONNRESET)) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

std::size_t residentPages() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  file >> total >> resident;
  return resident;
}

}  // namespace

TEST_CASE("operations of a hand-written peer that are out of bounds touch nothing") {
  Job job;
  auto& owner = *job.pair.contexts[1];
  GuardedMemory victim(owner, 4096);
  const Id128 name = nameOf(victim.memory());
  Id128 unknown = name;
  unknown[3] ^= 1;
  struct Attack {
    Message message;
    Outcome expected;
  };
  const auto write = [&](std::uint64_t offset, std::uint64_t size) {
    return Message{Operation::Write, 0, 1, name, offset, size, 0};
  };
  const auto update = [&](std::uint64_t offset) { return Message{Operation::Update, 0, 1, name, offset, 0, 7}; };
  const std::vector<Attack> attacks{
      {write(4096, 1), Outcome::OutOfRange},
      {write(4095, 2), Outcome::OutOfRange},
      {write(0, 4097), Outcome::OutOfRange},
      {write(1, UINT64_MAX), Outcome::OutOfRange},
      {write(UINT64_MAX, 1), Outcome::OutOfRange},
      {write(UINT64_MAX - 7, 16), Outcome::OutOfRange},
      {write(0, std::uint64_t{1} << 62), Outcome::OutOfRange},
      {write(0, 0), Outcome::OutOfRange},
      {update(4096), Outcome::OutOfRange},
      {update(4089), Outcome::OutOfRange},
      {update(UINT64_MAX - 3), Outcome::OutOfRange},
      {update(4), Outcome::OutOfRange},
      {{Operation::Write, 0, 1, unknown, 0, 8, 0}, Outcome::UnknownMemory},
      {{Operation::Update, 0, 1, nobody, 0, 0, 7}, Outcome::UnknownMemory},
      {{Operation::Write, 0, 2, name, 0, 8, 0}, Outcome::Malformed},
      {{Operation::Update, 0, 0, name, 0, 0, 7}, Outcome::Malformed},
      {{Operation::Update, 0, UINT64_MAX, name, 0, 0, 7}, Outcome::Malformed},
      {{Operation::Query, 0, 1, name, 0, 0, 0}, Outcome::Malformed},
      {{Operation{}, 0, 1, name, 0, 8, 0}, Outcome::Malformed},
      {{Operation{77}, 0, 1, name, 0, 8, 0}, Outcome::Malformed},
  };
  const std::size_t pages = residentPages();
  for (std::size_t i = 0; i < attacks.size(); ++i) {
    CAPTURE(i);
    const Endpoint endpoint = owner.createEndpoint(overTcp);
    const UniqueFd socket = dial(detailsOf(endpoint), nobody, Deadline::after(10s));
    // With bytes behind it that would be the payload.
    std::array<char, sizeof(Message) + 64> bytes;
    bytes.fill(1);
    std::memcpy(bytes.data(), &attacks[i].message, sizeof(Message));
    CHECK(sendAll(socket, bytes.data(), bytes.size(), Deadline::after(5s)) == Transfer::Done);
    Answer answer{};
    CHECK(recvAll(socket, &answer, sizeof(answer), Deadline::after(5s)) == Transfer::Done);
    CHECK(answer.outcome == attacks[i].expected);
    CHECK(answer.completed == 0);
    // It is heard no more, however proper it gets.
    const Message proper = write(0, 8);
    sendAll(socket, &proper, sizeof(proper), Deadline::after(1s));
    sendAll(socket, bytes.data(), 8, Deadline::after(1s));
  }
  CHECK(job.works());
  for (std::size_t i = 0; i < victim.bytes(); ++i) REQUIRE(victim.data()[i] == 0);
  CHECK(victim.guardsAreIntact());
  CHECK(residentPages() < pages + 10'000);

  // The same client with proper operations succeeds, so it was the operations that failed.
  const Endpoint endpoint = owner.createEndpoint(overTcp);
  const UniqueFd socket = dial(detailsOf(endpoint), nobody, Deadline::after(10s));
  const std::array<Message, 2> proper{update(8), Message{Operation::Query, 0, 1, nobody, 0, 0, 0}};
  CHECK(sendAll(socket, proper.data(), sizeof(proper), Deadline::after(5s)) == Transfer::Done);
  Answer answer{};
  CHECK(recvAll(socket, &answer, sizeof(answer), Deadline::after(5s)) == Transfer::Done);
  CHECK(answer.outcome == Outcome::Fine);
  CHECK(answer.completed == 1);
  CHECK(victim.words()[1] == 7);
}

TEST_CASE("a wrong key does not get in, nor does a recorded greeting") {
  auto context = Context::create();
  const Endpoint endpoint = context->createEndpoint(overTcp);
  const EndpointDetails details = detailsOf(endpoint);
  auto wrong = details;
  wrong.secret[5] ^= 1;
  CHECK(failureOf([&] { dial(wrong, nobody, Deadline::after(10s)); }).code == ErrorCode::InvalidUsage);
  auto other = details;
  other.id[0] ^= 1;
  CHECK(failureOf([&] { dial(other, nobody, Deadline::after(10s)); }).code == ErrorCode::InvalidUsage);
  const Endpoint local = context->createEndpoint(overTcp);
  CHECK(failureOf([&] { context->connect(local, withDetails(endpoint, wrong)); }).code == ErrorCode::InvalidUsage);

  // A relay between a rank and the endpoint learns the hello that got in.
  SocketAddress anyPort = details.address;
  anyPort.port = 0;
  UniqueFd relay = bindTo(anyPort);
  startListening(relay);
  auto throughRelay = details;
  throughRelay.address = localAddressOf(relay);
  Hello hello{};
  UniqueFd front;
  UniqueFd back = knock(details.address);
  std::thread middle([&] {
    const Deadline deadline = Deadline::after(10s);
    while (!front && !deadline.expired()) front = acceptFrom(relay);
    Greeting greeting;
    Welcome welcome;
    recvAll(back, &greeting, sizeof(greeting), deadline);
    sendAll(front, &greeting, sizeof(greeting), deadline);
    recvAll(front, &hello, sizeof(hello), deadline);
    sendAll(back, &hello, sizeof(hello), deadline);
    recvAll(back, &welcome, sizeof(welcome), deadline);
    sendAll(front, &welcome, sizeof(welcome), deadline);
  });
  const UniqueFd admitted = dial(throughRelay, nobody, Deadline::after(10s));
  middle.join();
  CHECK(admitted);
  CHECK(hello.magic == magic);
  const UniqueFd replayed = knock(details.address);
  Greeting greeting;
  Welcome welcome;
  REQUIRE(recvAll(replayed, &greeting, sizeof(greeting), Deadline::after(5s)) == Transfer::Done);
  REQUIRE(sendAll(replayed, &hello, sizeof(hello), Deadline::after(5s)) == Transfer::Done);
  REQUIRE(recvAll(replayed, &welcome, sizeof(welcome), Deadline::after(5s)) == Transfer::Done);
  CHECK(welcome.verdict == Verdict::Refused);
  CHECK(isClosedSoon(replayed, 5s));
}

TEST_CASE("strangers at the port do not disturb the job") {
  Job job;
  const Endpoint endpoint = job.pair.contexts[1]->createEndpoint(overTcp);
  const SocketAddress address = detailsOf(endpoint).address;
  std::mt19937 random(1);
  std::vector<UniqueFd> silent;
  std::vector<UniqueFd> talkative;
  for (int i = 0; i < 400; ++i) {
    // Those who say nothing, and those who begin well and then fall silent; more than the house has room for.
    UniqueFd socket = knock(address);
    REQUIRE(socket);
    if (i % 2 == 0) ::send(socket.get(), &magic, static_cast<std::size_t>(1 + i % 8), MSG_NOSIGNAL);
    silent.push_back(std::move(socket));
    if (i % 8 != 0) continue;
    UniqueFd loud = knock(address);
    std::vector<char> noise(10'000);
    for (auto& byte : noise) byte = static_cast<char>(random());
    const std::string text = "GET / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n";
    if (i % 16 == 0) std::copy(text.begin(), text.end(), noise.begin());
    sendAll(loud, noise.data(), noise.size(), Deadline::after(1s));
    talkative.push_back(std::move(loud));
    if (i % 80 == 0) CHECK(job.works());
  }
  for (const auto& socket : talkative) CHECK(isClosedSoon(socket, 10s));
  // A rank still finds its way through the crowd.
  const Endpoint local = job.pair.contexts[0]->createEndpoint(overTcp);
  auto connection = job.pair.contexts[0]->connect(local, passedOn(endpoint));
  std::uint64_t word = 0;
  connection.updateAndSync(job.memories[1].remote(), 0, &word, 1);
  connection.flush();
  CHECK(job.works());
  // The oldest were shown out.
  CHECK(isClosedSoon(silent.front(), 10s));
}

TEST_CASE("proven peers that fall silent, or do not listen, hold up nobody") {
  auto job = std::make_unique<Job>();
  auto& owner = *job->pair.contexts[1];
  GuardedMemory target(owner, 1 << 20);
  const Id128 name = nameOf(target.memory());
  std::vector<Endpoint> endpoints;
  std::vector<UniqueFd> sockets;
  for (int i = 0; i < 4; ++i) {
    endpoints.push_back(owner.createEndpoint(overTcp));
    sockets.push_back(dial(detailsOf(endpoints.back()), nobody, Deadline::after(10s)));
  }
  // One never speaks. One stops within a message, one within a payload. One asks and asks, and reads no answer.
  const Message message{Operation::Write, 0, 1, name, 0, 1 << 20, 0};
  CHECK(sendAll(sockets[1], &message, 20, Deadline::after(5s)) == Transfer::Done);
  CHECK(sendAll(sockets[2], &message, sizeof(message), Deadline::after(5s)) == Transfer::Done);
  const std::vector<char> part(300'000, 3);
  CHECK(sendAll(sockets[2], part.data(), part.size(), Deadline::after(5s)) == Transfer::Done);
  const std::vector<Message> questions(20'000, Message{Operation::Query, 0, 0, nobody, 0, 0, 0});
  for (int i = 0; i < 20; ++i) {
    if (sendAll(sockets[3], questions.data(), questions.size() * sizeof(Message), Deadline::after(200ms)) !=
        Transfer::Done) {
      break;
    }
  }
  CHECK(job->works());
  // Its memory can be withdrawn in the middle of a payload, and all can end.
  const auto start = std::chrono::steady_clock::now();
  target.withdraw();
  CHECK(job->works());
  endpoints.clear();
  job.reset();
  CHECK(std::chrono::steady_clock::now() - start < 10s);
  CHECK(isClosedSoon(sockets[2], 10s));
}

namespace {

// A peer whose answers are written by hand.
struct FakePeer {
  std::shared_ptr<Context> context = Context::create();
  Endpoint local = context->createEndpoint(overTcp);
  UniqueFd listener;
  UniqueFd socket;
  Connection connection;
  GuardedMemory memory{*context, 64};

  explicit FakePeer(std::chrono::milliseconds patience) {
    EndpointDetails details = detailsOf(local);
    SocketAddress address = details.address;
    address.port = 0;
    listener = bindTo(address);
    startListening(listener);
    details.address = localAddressOf(listener);
    std::thread host([&] {
      const Deadline deadline = Deadline::after(10s);
      UniqueFd accepted;
      while (!accepted && !deadline.expired()) accepted = acceptFrom(listener);
      PendingPeer pending(std::move(accepted), deadline);
      while (pending.receive() == PendingPeer::State::Waiting && !deadline.expired()) std::this_thread::yield();
      const Key key = keyOf(details.secret);
      if (pending.hasProven(key)) socket = *pending.answer(Verdict::Accepted, key);
    });
    UniqueFd dialled = dial(details, nobody, Deadline::after(10s));
    host.join();
    REQUIRE(socket);
    connection =
        Connection(std::make_shared<Outbound>(context, local, local, std::move(dialled), details.network, patience));
  }

  void issue() {
    std::uint64_t word = 0;
    connection.updateAndSync(memory.memory(), 0, &word, 1);
  }
  void answer(const Answer& answer, std::size_t bytes = sizeof(Answer)) {
    CHECK(sendAll(socket, &answer, bytes, Deadline::after(5s)) == Transfer::Done);
  }
};

}  // namespace

TEST_CASE("answers that make no sense are errors of the peer, which is named") {
  const auto reaction = [](const Answer& answer, std::size_t bytes = sizeof(Answer)) {
    FakePeer peer(10s);
    peer.issue();
    peer.answer(answer, bytes);
    ::shutdown(peer.socket.get(), SHUT_WR);
    const Failure failure = failureOf([&] { peer.connection.flush(5'000'000); });
    CHECK(failure.code == ErrorCode::RemoteError);
    CHECK(failure.text.find("the peer at " + localAddressOf(peer.listener).toString()) != std::string::npos);
    return failure.text;
  };
  CHECK(reaction({3, Outcome::Fine, 0}).find("makes no sense") != std::string::npos);
  CHECK(reaction({UINT64_MAX, Outcome::Fine, 0}).find("makes no sense") != std::string::npos);
  CHECK(reaction({0, Outcome{99}, 0}).find("does not know") != std::string::npos);
  CHECK(reaction({0, Outcome::OutOfRange, 0}).find("refuses operation 1: it leaves") != std::string::npos);
  CHECK(reaction({0, Outcome::Fine, 0}, 5).find("closed the connection") != std::string::npos);
}

TEST_CASE("a peer that does not answer, and one that takes no data, cost the time that is allowed") {
  FakePeer peer(300ms);
  peer.issue();
  const auto start = std::chrono::steady_clock::now();
  const Failure flushed = failureOf([&] { peer.connection.flush(50'000); });
  CHECK(flushed.code == ErrorCode::Timeout);
  CHECK(flushed.text.find("TCP to ") != std::string::npos);
  // That was only a look: the connection is as good as before.
  peer.answer({1, Outcome::Fine, 0});
  peer.connection.flush();
  CHECK(peer.connection.completed() == 1);

  GuardedMemory large(*peer.context, 32 << 20);
  const Failure stuck = failureOf([&] { peer.connection.write(large.memory(), 0, large.memory(), 0, 32 << 20); });
  CHECK(stuck.code == ErrorCode::Timeout);
  CHECK(stuck.text.find("takes no data") != std::string::npos);
  CHECK(failureOf([&] { peer.issue(); }).code == ErrorCode::Timeout);
  CHECK(std::chrono::steady_clock::now() - start < 20s);
}

TEST_CASE("whoever listens instead of a peer is found out") {
  SocketAddress anyPort = detailsOf(Context::create()->createEndpoint(overTcp)).address;
  anyPort.port = 0;
  const auto dialInto = [&](const std::vector<char>& words, std::chrono::milliseconds limit) {
    const UniqueFd listener = bindTo(anyPort);
    startListening(listener);
    const EndpointDetails details{magic, protocolVersion, 0, localAddressOf(listener), nobody, nobody, makeSecret()};
    std::thread host([&] {
      const Deadline deadline = Deadline::after(10s);
      UniqueFd accepted;
      while (!accepted && !deadline.expired()) accepted = acceptFrom(listener);
      sendAll(accepted, words.data(), words.size(), deadline);
      std::array<char, sizeof(Hello) + 1> rest;
      recvAll(accepted, rest.data(), rest.size(), deadline);
    });
    const Failure failure = failureOf([&] { dial(details, nobody, Deadline::after(limit)); });
    host.join();
    return failure.code;
  };
  CHECK(dialInto({}, 200ms) == ErrorCode::Timeout);
  std::vector<char> words(sizeof(Greeting) + sizeof(Welcome), 'x');
  CHECK(dialInto(words, 8s) == ErrorCode::InvalidUsage);
  // A proper greeting, and a welcome without proof: somebody who does not know the secret.
  const Greeting greeting{magic, protocolVersion, 0, makeNonce()};
  const Welcome welcome{magic, Verdict::Accepted, 0, {}};
  std::memcpy(words.data(), &greeting, sizeof(greeting));
  std::memcpy(words.data() + sizeof(greeting), &welcome, sizeof(welcome));
  CHECK(dialInto(words, 8s) == ErrorCode::InvalidUsage);
}

TEST_CASE("it listens on the chosen interface alone, and hands nothing to programs that are started") {
  auto context = Context::create();
  const SocketAddress address = detailsOf(context->createEndpoint(overTcp)).address;
  SocketAddress chosen = chooseLocalAddress(env()->socketIfname, env()->socketFamily);
  chosen.port = address.port;
  CHECK(address == chosen);
  CHECK_FALSE(address.isWildcard());
  if (address.family == SocketAddress::Family::V4) {
    SocketAddress elsewhere = address;
    elsewhere.bytes[0] = 127;
    elsewhere.bytes[3] = static_cast<std::uint8_t>(elsewhere.bytes[3] ^ 2);
    CHECK_FALSE(knock(elsewhere));
  }
  TcpPair pair;
  for (int fd = 3; fd < 256; ++fd) {
    const int flags = ::fcntl(fd, F_GETFD);
    std::array<char, 256> target{};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (flags < 0 || ::readlink(link.c_str(), target.data(), target.size() - 1) < 0) continue;
    const std::string what = target.data();
    if (what.find("socket:") == std::string::npos && what.find("anon_inode") == std::string::npos) continue;
    CAPTURE(what);
    CHECK((flags & FD_CLOEXEC) != 0);
  }
}
