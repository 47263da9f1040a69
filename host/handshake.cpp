#include "handshake.hpp"

#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "mscclpp/host/error.hpp"
#include "mscclpp/host/logger.hpp"

namespace mscclpp::detail {

using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t magic = 0x3170632b2b63736d;  // "msc++cp1" as bytes
constexpr std::uint32_t protocolVersion = 1;

// A rank answers in milliseconds; whoever takes longer than this is no rank.
constexpr std::chrono::milliseconds visitorPatience = 5s;
constexpr std::size_t reserveForStrangers = 128;

// The wire structures travel as their bytes; all ranks are little-endian, and the magic number would tell.
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

enum class Verdict : std::uint32_t { Accepted = 1, WrongSecret = 2, WrongVersion = 3 };

struct Reply {
  std::uint64_t magic;
  Verdict verdict;
  std::uint32_t reserved;
  Proof proof;
};

Proof prove(const Key& key, std::string_view side, const Greeting& greeting, Hello hello, Verdict verdict) {
  hello.proof = {};
  return proofOf(key, {side, bytesOf(greeting), bytesOf(hello), bytesOf(verdict)});
}

constexpr std::string_view connectingSide = "mscclpp connecting";
constexpr std::string_view acceptingSide = "mscclpp accepting ";

[[noreturn]] void refuseVersion(const SocketAddress& address) {
  throw Error("what listens at " + address.toString() + " is not this version of mscclpp: use one version on all ranks",
              ErrorCode::InvalidUsage);
}

// One attempt; an empty UniqueFd means that another one may go better.
UniqueFd introduce(const SocketAddress& address, const Key& key, const Introduction& self, Deadline deadline,
                   std::string& lastTrouble) {
  int errorNumber = 0;
  UniqueFd socket = tryConnect(address, deadline, errorNumber);
  if (!socket) {
    lastTrouble = std::strerror(errorNumber);
    return UniqueFd();
  }
  Greeting greeting;
  Transfer transfer = recvAll(socket, &greeting, sizeof(greeting), deadline);
  if (transfer == Transfer::Done) {
    if (greeting.magic != magic || greeting.version != protocolVersion) refuseVersion(address);
    Hello hello{};
    hello.magic = magic;
    hello.version = protocolVersion;
    hello.introduction = self;
    hello.nonce = makeNonce();
    hello.proof = prove(key, connectingSide, greeting, hello, Verdict::Accepted);
    transfer = sendAll(socket, &hello, sizeof(hello), deadline);
    Reply reply;
    if (transfer == Transfer::Done) transfer = recvAll(socket, &reply, sizeof(reply), deadline);
    if (transfer == Transfer::Done) {
      if (reply.magic != magic || reply.verdict == Verdict::WrongVersion) refuseVersion(address);
      // A refusal needs no proof: whoever forges it could as well cut the connection.
      if (reply.verdict != Verdict::Accepted ||
          !sameProof(reply.proof, prove(key, acceptingSide, greeting, hello, reply.verdict))) {
        throw Error("rank " + std::to_string(self.rank) + " and the job at " + address.toString() +
                        " have different secrets: give all ranks the same UniqueId or MSCCLPP_SECRET",
                    ErrorCode::InvalidUsage);
      }
      return socket;
    }
  }
  lastTrouble = transfer == Transfer::Closed ? "it closed the connection" : "it did not answer";
  return UniqueFd();
}

}  // namespace

Key keyForMeeting(const Key& key, const Nonce& meeting) {
  Key result;
  crypto_generichash(result.data(), result.size(), meeting.data(), meeting.size(), key.data(), key.size());
  return result;
}

UniqueFd connectAndIntroduce(const SocketAddress& address, const Key& key, const Introduction& self, Deadline deadline,
                             const std::function<void()>& checkpoint) {
  std::string lastTrouble = "nothing was tried";
  auto pause = 2ms;
  while (true) {
    checkpoint();
    UniqueFd socket = introduce(address, key, self, deadline, lastTrouble);
    if (socket) return socket;
    if (deadline.expired()) {
      throw Error("rank " + std::to_string(self.rank) + " could not reach rank " + std::to_string(self.peer) + " at " +
                      address.toString() + " within " + deadline.passed() + " (" + lastTrouble +
                      "): is that rank running, and may this host connect to it?",
                  ErrorCode::Timeout);
    }
    std::this_thread::sleep_for(std::min(pause, std::chrono::milliseconds(deadline.pollTimeout())));
    pause = std::min(pause * 2, 100ms);
  }
}

struct Doorkeeper::Visitor {
  UniqueFd socket;
  Deadline deadline;
  Greeting greeting;
  Hello hello;
  std::size_t received = 0;
  SocketAddress address;
};

Doorkeeper::Doorkeeper(UniqueFd listener, const Key& key, Purpose purpose, int rank, std::size_t expected)
    : listener_(std::move(listener)),
      key_(key),
      purpose_(purpose),
      rank_(rank),
      capacity_(expected + reserveForStrangers) {
  startListening(listener_);
}

Doorkeeper::~Doorkeeper() = default;

void Doorkeeper::admitVisitors() {
  // At most as many a turn as there is room for, so that those inside are served however many knock.
  for (std::size_t i = 0; i < capacity_; ++i) {
    UniqueFd socket = acceptFrom(listener_);
    if (!socket) {
      // Out of descriptors: the oldest visitor makes room, or somebody else does in a while.
      if (errno == EMFILE || errno == ENFILE) {
        if (visitors_.empty()) {
          std::this_thread::sleep_for(10ms);
        } else {
          visitors_.pop_front();
        }
      }
      return;
    }
    Visitor visitor{
        std::move(socket), Deadline::after(visitorPatience), {magic, protocolVersion, 0, makeNonce()}, {}, 0, {}};
    visitor.address = remoteAddressOf(visitor.socket);
    // A fresh connection has room for a few bytes, or is not worth the wait.
    const ssize_t sent = ::send(visitor.socket.get(), &visitor.greeting, sizeof(Greeting), MSG_NOSIGNAL);
    if (sent != sizeof(Greeting)) continue;
    if (visitors_.size() == capacity_) visitors_.pop_front();
    visitors_.push_back(std::move(visitor));
  }
}

Doorkeeper::Progress Doorkeeper::listenTo(Visitor& visitor) {
  char* bytes = reinterpret_cast<char*>(&visitor.hello);
  while (visitor.received < sizeof(Hello)) {
    const ssize_t count = ::recv(visitor.socket.get(), bytes + visitor.received, sizeof(Hello) - visitor.received, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count <= 0) return Progress::Refused;
    visitor.received += static_cast<std::size_t>(count);
    // Garbage is recognised as soon as it can be.
    if (visitor.received >= sizeof(visitor.hello.magic) && visitor.hello.magic != magic) return Progress::Refused;
  }
  if (visitor.received < sizeof(Hello)) return visitor.deadline.expired() ? Progress::Refused : Progress::Waiting;

  const Hello& hello = visitor.hello;
  Reply reply{};
  reply.magic = magic;
  reply.verdict = Verdict::Accepted;
  if (hello.version != protocolVersion) {
    reply.verdict = Verdict::WrongVersion;
  } else if (!sameProof(hello.proof, prove(key_, connectingSide, visitor.greeting, hello, Verdict::Accepted))) {
    reply.verdict = Verdict::WrongSecret;
  } else if (hello.introduction.purpose != purpose_ || hello.introduction.peer != rank_) {
    return Progress::Refused;
  } else {
    reply.proof = prove(key_, acceptingSide, visitor.greeting, hello, reply.verdict);
  }
  const ssize_t sent = ::send(visitor.socket.get(), &reply, sizeof(reply), MSG_NOSIGNAL);
  return reply.verdict == Verdict::Accepted && sent == sizeof(reply) ? Progress::Proven : Progress::Refused;
}

std::optional<Doorkeeper::Guest> Doorkeeper::next(Deadline deadline) {
  std::vector<pollfd> entries;
  while (true) {
    for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
      const Progress progress = listenTo(*visitor);
      if (progress == Progress::Waiting) {
        ++visitor;
        continue;
      }
      std::optional<Guest> guest;
      if (progress == Progress::Proven) {
        guest = Guest{visitor->hello.introduction, std::move(visitor->socket)};
      } else {
        logMessage(LogLevel::Info, LogSubsystem::Net, "dropped a connection from ", visitor->address.toString(),
                   ": it did not prove that it belongs to this job");
      }
      visitor = visitors_.erase(visitor);
      if (guest) return guest;
    }
    if (deadline.expired()) return std::nullopt;

    entries.assign(1, pollfd{listener_.get(), POLLIN, 0});
    int timeout = deadline.pollTimeout();
    for (const Visitor& visitor : visitors_) {
      entries.push_back(pollfd{visitor.socket.get(), POLLIN, 0});
      timeout = std::min(timeout, visitor.deadline.pollTimeout());
    }
    if (::poll(entries.data(), entries.size(), timeout) < 0 && errno != EINTR) throw SysError("poll", errno);
    admitVisitors();
  }
}

}  // namespace mscclpp::detail
