// The TCP transport against peers that violate the protocol, unauthenticated connections, forks and a lack of
// descriptors.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "host/transport/tcp/handshake.hpp"
#include "host/transport/tcp/memory_info.hpp"
#include "host/transport/tcp/tcp_connection.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "tcp_pair.hpp"
#include "tests/host/process_resources.hpp"
#include "tests/host/replaced_new.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;
using namespace mscclpp::detail::tcp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

const EndpointConfig overTcp{Transport::Ethernet, DeviceType::CPU};
const Id128 nobody{};

// A serialised endpoint: header (16), transport and device (12), queue size (4), hashes (16), length (8), info.
constexpr std::size_t infoOffset = 56;

EndpointInfo infoOf(const Endpoint& endpoint) {
  const auto bytes = endpoint.serialize();
  EndpointInfo info;
  REQUIRE(bytes.size() == infoOffset + sizeof(info));
  std::memcpy(&info, bytes.data() + infoOffset, sizeof(info));
  return info;
}

Endpoint withInfo(const Endpoint& endpoint, const EndpointInfo& info) {
  auto bytes = endpoint.serialize();
  std::memcpy(bytes.data() + infoOffset, &info, sizeof(info));
  return Endpoint::deserialize(bytes);
}

// The id of a registration: header (16), host (8), process (16), address, size (16), transports, count (8), handle.
Id128 nameOf(const RegisteredMemory& memory) {
  const auto bytes = memory.serialize();
  MemoryHandle handle;
  REQUIRE(bytes.size() == 64 + sizeof(handle) + sizeof(Id128));
  std::memcpy(&handle, bytes.data() + 64, sizeof(handle));
  REQUIRE(handle.kind == HandleKind::Tcp);
  return handle.allocation;
}

// Checks that a job still works: data and a word, each way, over its own connections.
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

UniqueFd openConnection(const SocketAddress& address) {
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

TEST_CASE("a context whose thread is out of memory says so, and its peers' connections fail" *
          doctest::skip(!replacesNew)) {
  Job job;
  CHECK(job.works());
  const auto address = infoOf(job.pair.contexts[0]->createEndpoint(overTcp)).address;
  const Deadline deadline = Deadline::after(60s);
  std::string text;
  {
    const FailingAllocations failing;
    const UniqueFd client = openConnection(address);
    while (text.empty() && !deadline.expired()) {
      try {
        job.pair.contexts[0]->createEndpoint(overTcp);
      } catch (const Error& error) {
        text = error.what();
      }
    }
  }
  CAPTURE(text);
  CHECK(text.find("nothing can be received any more, since an internal error has ended the thread") !=
        std::string::npos);
  CHECK_THROWS_WITH_AS(job.pair.contexts[0]->registerMemory(&job, sizeof(job), Transport::Ethernet),
                       doctest::Contains("nothing can be received any more"), Error);
  CHECK_THROWS_AS(
      {
        job.pair.connections[1].write(job.memories[0].remote(), 0, job.memories[1].memory(), 0, 8);
        job.pair.connections[1].flush();
      },
      Error);
  CHECK(openConnection(address).get() == -1);
  CHECK_FALSE(deadline.expired());
}

TEST_CASE("out-of-bounds operations of a raw client change no memory") {
  Job job;
  auto& owner = *job.pair.contexts[1];
  GuardedMemory victim(owner, 4096);
  const Id128 name = nameOf(victim.memory());
  Id128 unknown = name;
  unknown[3] ^= 1;
  struct Attack {
    Message message;
    Status expected;
  };
  const auto write = [&](std::uint64_t offset, std::uint64_t size) {
    return Message{Operation::Write, 0, 1, name, offset, size, 0};
  };
  const auto update = [&](std::uint64_t offset) { return Message{Operation::Update, 0, 1, name, offset, 0, 7}; };
  const std::vector<Attack> attacks{
      {write(4096, 1), Status::OutOfRange},
      {write(4095, 2), Status::OutOfRange},
      {write(0, 4097), Status::OutOfRange},
      {write(1, UINT64_MAX), Status::OutOfRange},
      {write(UINT64_MAX, 1), Status::OutOfRange},
      {write(UINT64_MAX - 7, 16), Status::OutOfRange},
      {write(0, std::uint64_t{1} << 62), Status::OutOfRange},
      {write(0, 0), Status::OutOfRange},
      {update(4096), Status::OutOfRange},
      {update(4089), Status::OutOfRange},
      {update(UINT64_MAX - 3), Status::OutOfRange},
      {update(4), Status::OutOfRange},
      {{Operation::Write, 0, 1, unknown, 0, 8, 0}, Status::UnknownMemory},
      {{Operation::Update, 0, 1, nobody, 0, 0, 7}, Status::UnknownMemory},
      {{Operation::Write, 0, 2, name, 0, 8, 0}, Status::Malformed},
      {{Operation::Update, 0, 0, name, 0, 0, 7}, Status::Malformed},
      {{Operation::Update, 0, UINT64_MAX, name, 0, 0, 7}, Status::Malformed},
      {{Operation::Query, 0, 1, name, 0, 0, 0}, Status::Malformed},
      {{Operation{}, 0, 1, name, 0, 8, 0}, Status::Malformed},
      {{Operation{77}, 0, 1, name, 0, 8, 0}, Status::Malformed},
  };
  const std::size_t pages = residentPages();
  for (std::size_t i = 0; i < attacks.size(); ++i) {
    CAPTURE(i);
    const Endpoint endpoint = owner.createEndpoint(overTcp);
    const UniqueFd socket = connectToEndpoint(infoOf(endpoint), nobody, Deadline::after(10s));
    // Followed by bytes that would be the payload.
    std::array<char, sizeof(Message) + 64> bytes;
    bytes.fill(1);
    std::memcpy(bytes.data(), &attacks[i].message, sizeof(Message));
    CHECK(sendAll(socket, bytes.data(), bytes.size(), Deadline::after(5s)) == TransferStatus::Done);
    Reply answer{};
    CHECK(recvAll(socket, &answer, sizeof(answer), Deadline::after(5s)) == TransferStatus::Done);
    CHECK(answer.status == attacks[i].expected);
    CHECK(answer.completed == 0);
    // Nothing more is read from it, not even valid messages.
    const Message proper = write(0, 8);
    sendAll(socket, &proper, sizeof(proper), Deadline::after(1s));
    sendAll(socket, bytes.data(), 8, Deadline::after(1s));
  }
  CHECK(job.works());
  for (std::size_t i = 0; i < victim.bytes(); ++i) REQUIRE(victim.data()[i] == 0);
  CHECK(victim.guardsAreIntact());
  CHECK(residentPages() < pages + 10'000);

  // The same client succeeds with valid operations, so it was the operations that failed.
  const Endpoint endpoint = owner.createEndpoint(overTcp);
  const UniqueFd socket = connectToEndpoint(infoOf(endpoint), nobody, Deadline::after(10s));
  const std::array<Message, 2> proper{update(8), Message{Operation::Query, 0, 1, nobody, 0, 0, 0}};
  CHECK(sendAll(socket, proper.data(), sizeof(proper), Deadline::after(5s)) == TransferStatus::Done);
  Reply answer{};
  CHECK(recvAll(socket, &answer, sizeof(answer), Deadline::after(5s)) == TransferStatus::Done);
  CHECK(answer.status == Status::Ok);
  CHECK(answer.completed == 1);
  CHECK(victim.words()[1] == 7);
}

TEST_CASE("a wrong key is rejected, and so is a replayed handshake") {
  auto context = Context::create();
  const Endpoint endpoint = context->createEndpoint(overTcp);
  const EndpointInfo info = infoOf(endpoint);
  auto wrong = info;
  wrong.secret[5] ^= 1;
  CHECK(failureOf([&] { connectToEndpoint(wrong, nobody, Deadline::after(10s)); }).code == ErrorCode::InvalidUsage);
  auto other = info;
  other.id[0] ^= 1;
  CHECK(failureOf([&] { connectToEndpoint(other, nobody, Deadline::after(10s)); }).code == ErrorCode::InvalidUsage);
  const Endpoint local = context->createEndpoint(overTcp);
  CHECK(failureOf([&] { context->connect(local, withInfo(endpoint, wrong)); }).code == ErrorCode::InvalidUsage);

  // A relay between a rank and the endpoint records the request that was accepted.
  SocketAddress anyPort = info.address;
  anyPort.port = 0;
  UniqueFd relay = bindTo(anyPort);
  startListening(relay);
  auto throughRelay = info;
  throughRelay.address = localAddressOf(relay);
  ConnectRequest request{};
  UniqueFd front;
  UniqueFd back = openConnection(info.address);
  std::thread middle([&] {
    const Deadline deadline = Deadline::after(10s);
    while (!front && !deadline.expired()) front = acceptFrom(relay);
    Challenge challenge;
    ConnectReply reply;
    recvAll(back, &challenge, sizeof(challenge), deadline);
    sendAll(front, &challenge, sizeof(challenge), deadline);
    recvAll(front, &request, sizeof(request), deadline);
    sendAll(back, &request, sizeof(request), deadline);
    recvAll(back, &reply, sizeof(reply), deadline);
    sendAll(front, &reply, sizeof(reply), deadline);
  });
  const UniqueFd admitted = connectToEndpoint(throughRelay, nobody, Deadline::after(10s));
  middle.join();
  CHECK(admitted);
  CHECK(request.magic == magic);
  const UniqueFd replayed = openConnection(info.address);
  Challenge challenge;
  ConnectReply reply;
  REQUIRE(recvAll(replayed, &challenge, sizeof(challenge), Deadline::after(5s)) == TransferStatus::Done);
  REQUIRE(sendAll(replayed, &request, sizeof(request), Deadline::after(5s)) == TransferStatus::Done);
  REQUIRE(recvAll(replayed, &reply, sizeof(reply), Deadline::after(5s)) == TransferStatus::Done);
  CHECK(reply.status == ConnectStatus::Unauthorized);
  CHECK(isClosedSoon(replayed, 5s));
}

TEST_CASE("unauthenticated connections do not affect the job") {
  Job job;
  const Endpoint endpoint = job.pair.contexts[1]->createEndpoint(overTcp);
  const SocketAddress address = infoOf(endpoint).address;
  std::mt19937 random(1);
  std::vector<UniqueFd> silent;
  std::vector<UniqueFd> talkative;
  for (int i = 0; i < 400; ++i) {
    // Clients that send nothing, and clients that begin correctly and then stop; more than the connection limit.
    UniqueFd socket = openConnection(address);
    REQUIRE(socket);
    if (i % 2 == 0) ::send(socket.get(), &magic, static_cast<std::size_t>(1 + i % 8), MSG_NOSIGNAL);
    silent.push_back(std::move(socket));
    if (i % 8 != 0) continue;
    UniqueFd loud = openConnection(address);
    std::vector<char> noise(10'000);
    for (auto& byte : noise) byte = static_cast<char>(random());
    const std::string text = "GET / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n";
    if (i % 16 == 0) std::copy(text.begin(), text.end(), noise.begin());
    sendAll(loud, noise.data(), noise.size(), Deadline::after(1s));
    talkative.push_back(std::move(loud));
    if (i % 80 == 0) CHECK(job.works());
  }
  for (const auto& socket : talkative) CHECK(isClosedSoon(socket, 10s));
  // A rank can still connect.
  const Endpoint local = job.pair.contexts[0]->createEndpoint(overTcp);
  auto connection = job.pair.contexts[0]->connect(local, remoteCopy(endpoint));
  std::uint64_t word = 0;
  connection.updateAndSync(job.memories[1].remote(), 0, &word, 1);
  connection.flush();
  CHECK(job.works());
  // The oldest were disconnected.
  CHECK(isClosedSoon(silent.front(), 10s));
}

TEST_CASE("authenticated peers that stall or do not read block no other peer") {
  auto job = std::make_unique<Job>();
  auto& owner = *job->pair.contexts[1];
  GuardedMemory target(owner, 1 << 20);
  const Id128 name = nameOf(target.memory());
  std::vector<Endpoint> endpoints;
  std::vector<UniqueFd> sockets;
  for (int i = 0; i < 4; ++i) {
    endpoints.push_back(owner.createEndpoint(overTcp));
    sockets.push_back(connectToEndpoint(infoOf(endpoints.back()), nobody, Deadline::after(10s)));
  }
  // One sends nothing. One stops within a message, one within a payload. One keeps sending queries and reads no reply.
  const Message message{Operation::Write, 0, 1, name, 0, 1 << 20, 0};
  CHECK(sendAll(sockets[1], &message, 20, Deadline::after(5s)) == TransferStatus::Done);
  CHECK(sendAll(sockets[2], &message, sizeof(message), Deadline::after(5s)) == TransferStatus::Done);
  const std::vector<char> part(300'000, 3);
  CHECK(sendAll(sockets[2], part.data(), part.size(), Deadline::after(5s)) == TransferStatus::Done);
  const std::vector<Message> questions(20'000, Message{Operation::Query, 0, 0, nobody, 0, 0, 0});
  for (int i = 0; i < 20; ++i) {
    if (sendAll(sockets[3], questions.data(), questions.size() * sizeof(Message), Deadline::after(200ms)) !=
        TransferStatus::Done) {
      break;
    }
  }
  CHECK(job->works());
  // Memory can be deregistered in the middle of a payload, and everything can be destroyed.
  const auto start = std::chrono::steady_clock::now();
  target.withdraw();
  CHECK(job->works());
  endpoints.clear();
  job.reset();
  CHECK(std::chrono::steady_clock::now() - start < 10s);
  CHECK(isClosedSoon(sockets[2], 10s));
}

namespace {

// A peer whose replies the test sends.
struct FakePeer {
  std::shared_ptr<Context> context = Context::create();
  Endpoint local = context->createEndpoint(overTcp);
  UniqueFd listener;
  UniqueFd socket;
  Connection connection;
  GuardedMemory memory{*context, 64};

  explicit FakePeer(std::chrono::milliseconds peerTimeout) {
    EndpointInfo info = infoOf(local);
    SocketAddress address = info.address;
    address.port = 0;
    listener = bindTo(address);
    startListening(listener);
    info.address = localAddressOf(listener);
    std::thread host([&] {
      const Deadline deadline = Deadline::after(10s);
      UniqueFd accepted;
      while (!accepted && !deadline.expired()) accepted = acceptFrom(listener);
      PendingPeer pending(std::move(accepted), deadline);
      while (pending.receive() == PendingPeer::State::Waiting && !deadline.expired()) std::this_thread::yield();
      const Key key = deriveKey(info.secret);
      if (pending.verify(key) && pending.reply(ConnectStatus::Accepted, key)) socket = pending.takeSocket();
    });
    UniqueFd connected = connectToEndpoint(info, nobody, Deadline::after(10s));
    host.join();
    REQUIRE(socket);
    connection = Connection(
        std::make_shared<TcpConnection>(context, local, local, std::move(connected), info.network, peerTimeout));
  }

  void issue() {
    std::uint64_t word = 0;
    connection.updateAndSync(memory.memory(), 0, &word, 1);
  }
  void reply(const Reply& answer, std::size_t bytes = sizeof(Reply)) {
    CHECK(sendAll(socket, &answer, bytes, Deadline::after(5s)) == TransferStatus::Done);
  }
};

}  // namespace

TEST_CASE("invalid replies are errors of the peer, which is named") {
  const auto reaction = [](const Reply& answer, std::size_t bytes = sizeof(Reply)) {
    FakePeer peer(10s);
    peer.issue();
    peer.reply(answer, bytes);
    ::shutdown(peer.socket.get(), SHUT_WR);
    const Failure failure = failureOf([&] { peer.connection.flush(5'000'000); });
    CHECK(failure.code == ErrorCode::RemoteError);
    CHECK(failure.text.find("the peer at " + localAddressOf(peer.listener).toString()) != std::string::npos);
    return failure.text;
  };
  CHECK(reaction({3, Status::Ok, 0}).find("invalid reply") != std::string::npos);
  CHECK(reaction({UINT64_MAX, Status::Ok, 0}).find("invalid reply") != std::string::npos);
  CHECK(reaction({0, Status{99}, 0}).find("this version does not know") != std::string::npos);
  CHECK(reaction({0, Status::OutOfRange, 0}).find("refused operation 1: it is outside") != std::string::npos);
  CHECK(reaction({0, Status::Ok, 0}, 5).find("closed the connection") != std::string::npos);
}

TEST_CASE("a peer that does not reply, and one that reads no data, cause a timeout") {
  FakePeer peer(300ms);
  peer.issue();
  const auto start = std::chrono::steady_clock::now();
  const Failure flushed = failureOf([&] { peer.connection.flush(50'000); });
  CHECK(flushed.code == ErrorCode::Timeout);
  CHECK(flushed.text.find("TCP to ") != std::string::npos);
  // The timeout of a flush leaves the connection usable.
  peer.reply({1, Status::Ok, 0});
  peer.connection.flush();
  CHECK(peer.connection.completed() == 1);

  GuardedMemory large(*peer.context, 32 << 20);
  const Failure stuck = failureOf([&] { peer.connection.write(large.memory(), 0, large.memory(), 0, 32 << 20); });
  CHECK(stuck.code == ErrorCode::Timeout);
  CHECK(stuck.text.find("has accepted no data") != std::string::npos);
  CHECK(failureOf([&] { peer.issue(); }).code == ErrorCode::Timeout);
  CHECK(std::chrono::steady_clock::now() - start < 20s);
}

TEST_CASE("a process that listens in place of a peer is detected") {
  SocketAddress anyPort = infoOf(Context::create()->createEndpoint(overTcp)).address;
  anyPort.port = 0;
  const auto connectToImpostor = [&](const std::vector<char>& words, std::chrono::milliseconds limit) {
    const UniqueFd listener = bindTo(anyPort);
    startListening(listener);
    const EndpointInfo info{magic, protocolVersion, 0, localAddressOf(listener), nobody, nobody, makeSecret()};
    std::thread host([&] {
      const Deadline deadline = Deadline::after(10s);
      UniqueFd accepted;
      while (!accepted && !deadline.expired()) accepted = acceptFrom(listener);
      sendAll(accepted, words.data(), words.size(), deadline);
      std::array<char, sizeof(ConnectRequest) + 1> rest;
      recvAll(accepted, rest.data(), rest.size(), deadline);
    });
    const Failure failure = failureOf([&] { connectToEndpoint(info, nobody, Deadline::after(limit)); });
    host.join();
    return failure.code;
  };
  CHECK(connectToImpostor({}, 200ms) == ErrorCode::Timeout);
  std::vector<char> words(sizeof(Challenge) + sizeof(ConnectReply), 'x');
  CHECK(connectToImpostor(words, 8s) == ErrorCode::InvalidUsage);
  // A valid challenge, and a reply without a valid MAC: the sender does not know the secret.
  const Challenge challenge{magic, protocolVersion, 0, makeNonce()};
  const ConnectReply reply{magic, ConnectStatus::Accepted, 0, {}};
  std::memcpy(words.data(), &challenge, sizeof(challenge));
  std::memcpy(words.data() + sizeof(challenge), &reply, sizeof(reply));
  CHECK(connectToImpostor(words, 8s) == ErrorCode::InvalidUsage);
}

TEST_CASE("only the endpoint that its owner connects to is accepted") {
  auto owner = Context::create();
  auto other = Context::create();
  const Endpoint endpoint = owner->createEndpoint(overTcp);
  const Endpoint expected = other->createEndpoint(overTcp);
  const auto connection = owner->connect(endpoint, remoteCopy(expected));
  // This endpoint knows the secret too.
  const Id128 initiator = infoOf(other->createEndpoint(overTcp)).id;
  const Failure failure = failureOf([&] { connectToEndpoint(infoOf(endpoint), initiator, Deadline::after(10s)); });
  CHECK(failure.code == ErrorCode::InvalidUsage);
  CHECK(failure.text.find("has a connection already") != std::string::npos);
  CHECK(connectToEndpoint(infoOf(endpoint), infoOf(expected).id, Deadline::after(10s)));
}

namespace {

// A forked child that holds copies of all descriptors until the test ends it.
class Child {
 public:
  explicit Child(const std::function<void()>& body = [] { ::pause(); }) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::alarm(30);
    body();
    ::_exit(0);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    if (!waited_) ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  /// Returns the exit status; -1 if killed by a signal.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    waited_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
  bool waited_ = false;
};

std::chrono::nanoseconds cpuTime() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace

// ThreadSanitizer does not know the parent's threads in a forked child.
TEST_CASE("a forked child that destroys its copy of a connection does not consume the parent's replies" *
          doctest::skip(detectsRaces)) {
  auto peer = std::make_unique<FakePeer>(10s);
  peer->issue();
  CHECK(peer->connection.completed() == 0);  // the query is in flight
  Child child([&] { peer.reset(); });
  peer->reply({1, Status::Ok, 0});
  CHECK(child.wait() == 0);
  CHECK(failureOf([&] { peer->connection.flush(5'000'000); }).text == "");
  // Nor does it stop the parent's service thread.
  const Endpoint endpoint = peer->context->createEndpoint(overTcp);
  CHECK(connectToEndpoint(infoOf(endpoint), nobody, Deadline::after(5s)));
}

TEST_CASE("sockets that a forked child holds are closed for the peers, and do not make the thread spin") {
  auto context = Context::create();
  Endpoint endpoint = context->createEndpoint(overTcp);
  const EndpointInfo info = infoOf(endpoint);
  const UniqueFd pending = openConnection(info.address);
  Challenge challenge;
  REQUIRE(recvAll(pending, &challenge, sizeof(challenge), Deadline::after(5s)) == TransferStatus::Done);
  const UniqueFd authenticated = connectToEndpoint(info, nobody, Deadline::after(5s));
  // Complete requests that are rejected: with a wrong tag, and of another version.
  std::array<UniqueFd, 2> rejected;
  for (UniqueFd& socket : rejected) {
    socket = openConnection(info.address);
    REQUIRE(recvAll(socket, &challenge, sizeof(challenge), Deadline::after(5s)) == TransferStatus::Done);
  }
  const Child child;
  for (std::size_t i = 0; i < rejected.size(); ++i) {
    ConnectRequest request{};
    request.magic = challenge.magic;
    request.version = challenge.version + static_cast<std::uint32_t>(i);
    CHECK(sendAll(rejected[i], &request, sizeof(request), Deadline::after(5s)) == TransferStatus::Done);
    ConnectReply reply;
    CHECK(recvAll(rejected[i], &reply, sizeof(reply), Deadline::after(5s)) == TransferStatus::Done);
    CHECK(reply.status != ConnectStatus::Accepted);
    CHECK(isClosedSoon(rejected[i], 10s));
  }
  const std::vector<char> garbage(1000, 'x');
  CHECK(sendAll(pending, garbage.data(), garbage.size(), Deadline::after(5s)) == TransferStatus::Done);
  CHECK(isClosedSoon(pending, 10s));
  endpoint = Endpoint();
  CHECK(isClosedSoon(authenticated, 10s));
  static_cast<void>(::send(authenticated.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL));
  const auto before = cpuTime();
  ::poll(nullptr, 0, 300);
  CHECK(cpuTime() - before < 100ms);
  context.reset();
  CHECK_FALSE(openConnection(info.address));
}

TEST_CASE("a lack of descriptors is an error at once, on both sides") {
  auto context = Context::create();
  const Endpoint endpoint = context->createEndpoint(overTcp);
  const EndpointInfo info = infoOf(endpoint);
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  Child child([&] {
    char word;
    static_cast<void>(::read(ends[0], &word, 1) == 1);
    const auto start = std::chrono::steady_clock::now();
    const Failure failure = failureOf([&] { connectToEndpoint(info, nobody, Deadline::after(60s)); });
    const bool named = failure.code == ErrorCode::RemoteError && failure.text.find("ulimit -n") != std::string::npos;
    ::_exit(!named ? 1 : std::chrono::steady_clock::now() - start > 15s ? 2 : 0);
  });
  std::string text;
  {
    const DescriptorLimit exhausted(0);
    try {
      connectToEndpoint(info, nobody, Deadline::after(60s));
    } catch (const BaseError& error) {
      text = error.what();
    }
    CHECK(::write(ends[1], "x", 1) == 1);
    CHECK(child.wait() == 0);
  }
  CAPTURE(text);
  CHECK(text.find("Too many open files") != std::string::npos);
  CHECK(text.find("ulimit -n") != std::string::npos);
  CHECK(connectToEndpoint(info, nobody, Deadline::after(5s)));
  for (int end : ends) ::close(end);
}

TEST_CASE("for any limit of descriptors, calls succeed or fail at once with an error that names it") {
  const std::size_t open = openDescriptors();
  int failures = 0;
  for (std::size_t extra = 0; extra < 40; ++extra) {
    CAPTURE(extra);
    Child child([&] {
      const rlimit limit{open + extra, open + extra};
      if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(3);
      const auto start = std::chrono::steady_clock::now();
      int status = 0;
      try {
        TcpPair pair;
        HostBuffer buffer(4096);
        const auto memory =
            pair.contexts[0]->registerMemory(buffer.data(), 4096, Transport::SharedMemory | Transport::Ethernet);
        std::uint64_t word = 0;
        pair.connections[1].updateAndSync(remoteCopy(memory), 0, &word, 1);
        pair.connections[1].flush();
      } catch (const std::exception& error) {
        status = std::string(error.what()).find("ulimit -n") != std::string::npos ? 1 : 4;
        if (status == 4) static_cast<void>(::write(STDERR_FILENO, error.what(), std::strlen(error.what())));
      }
      ::_exit(std::chrono::steady_clock::now() - start > 15s ? 5 : status);
    });
    const int status = child.wait();
    CHECK(status >= 0);
    CHECK(status <= 1);
    failures += status == 1 ? 1 : 0;
  }
  CHECK(failures > 5);
  CHECK(failures < 40);
}

TEST_CASE("it listens on the chosen interface only, and started programs inherit no descriptors") {
  auto context = Context::create();
  const SocketAddress address = infoOf(context->createEndpoint(overTcp)).address;
  SocketAddress chosen = chooseLocalAddress(env()->socketIfname, env()->socketFamily);
  chosen.port = address.port;
  CHECK(address == chosen);
  CHECK_FALSE(address.isWildcard());
  if (address.family == SocketAddress::Family::V4) {
    SocketAddress elsewhere = address;
    elsewhere.bytes[0] = 127;
    elsewhere.bytes[3] = static_cast<std::uint8_t>(elsewhere.bytes[3] ^ 2);
    CHECK_FALSE(openConnection(elsewhere));
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
