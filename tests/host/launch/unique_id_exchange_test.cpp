// Rank 0 sends a UniqueId to the ranks of its host, in the presence of clients that are not ranks.
#include "host/launch/unique_id_exchange.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "host/net/local_socket.hpp"
#include "host/net/socket.hpp"
#include "mscclpp/host/base/error.hpp"
#include "tests/host/ranks.hpp"

using namespace mscclpp;
using namespace std::chrono_literals;
using detail::Deadline;
using detail::UniqueFd;
using test::ChildProcess;

namespace {

constexpr uid_t otherUser = 65534;

std::string jobName(const std::string& text) {
  return text + " of process " + std::to_string(::getpid());
}

/// Waits until rank 0 listens, and returns the name of its socket; empty after 20 s.
std::string awaitListener(const std::string& prefix) {
  const Deadline deadline = Deadline::after(20s);
  while (!deadline.expired()) {
    const auto names = detail::findListeners(prefix);
    if (!names.empty()) return names.front();
    std::this_thread::sleep_for(1ms);
  }
  return "";
}

UniqueFd connectTo(const std::string& name) {
  int errorNumber = 0;
  return detail::connectLocal(name, Deadline::after(5s), errorNumber);
}

/// Switches to another user. Requires root.
void becomeOtherUser() {
  if (::setgid(otherUser) != 0 || ::setuid(otherUser) != 0) throw std::runtime_error("setuid");
}

/// A thread that runs rank 0 of `numRanks` and keeps the exception it threw.
class Server {
 public:
  Server(const std::string& job, const UniqueId& uniqueId, int numRanks, std::chrono::milliseconds timeout = 20s)
      : thread_([this, job, uniqueId, numRanks, timeout] {
          try {
            detail::serveUniqueId({job}, uniqueId, numRanks, Deadline::after(timeout));
          } catch (const Error& error) {
            text_ = error.what();
          }
          ended_ = true;
        }) {}
  ~Server() {
    if (thread_.joinable()) thread_.join();
  }
  bool ended() const { return ended_; }
  std::string wait() {
    thread_.join();
    return text_;
  }

 private:
  std::string text_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

}  // namespace

TEST_CASE("each rank receives the UniqueId") {
  const UniqueId uniqueId = TcpBootstrap::createUniqueId();
  const std::string job = jobName("a job");
  Server server(job, uniqueId, 3);
  const auto deadline = Deadline::after(20s);
  CHECK(detail::fetchUniqueId({"another name", job}, 2, deadline) == uniqueId);
  CHECK(detail::fetchUniqueId({job}, 1, deadline) == uniqueId);
  CHECK(server.wait() == "");
}

TEST_CASE("names are not predictable") {
  const std::string job = jobName("a job offered twice"), prefix = detail::rendezvousPrefix(job);
  std::string names[2];
  for (std::string& name : names) {
    Server server(job, UniqueId{}, 2);
    name = awaitListener(prefix);
    detail::fetchUniqueId({job}, 1, Deadline::after(20s));
    CHECK(server.wait() == "");
  }
  CHECK(names[0] != names[1]);
  CHECK(names[0].size() == prefix.size() + 32);
}

TEST_CASE("two processes cannot be rank 0 of one job") {
  const std::string job = jobName("a job with two rank 0");
  Server first(job, UniqueId{}, 2);
  awaitListener(detail::rendezvousPrefix(job));
  CHECK_THROWS_WITH_AS(detail::serveUniqueId({job}, UniqueId{}, 2, Deadline::after(5s)),
                       doctest::Contains("were two processes started as rank 0"), Error);
  detail::fetchUniqueId({job}, 1, Deadline::after(20s));
  CHECK(first.wait() == "");
}

TEST_CASE("clients that keep connecting do not delay rank 0") {
  const auto start = std::chrono::steady_clock::now();
  const std::string job = jobName("a flooded job");
  Server server(job, UniqueId{}, 2, 1s);
  const std::string name = awaitListener(detail::rendezvousPrefix(job));
  int calls = 0;
  while (!server.ended() && std::chrono::steady_clock::now() - start < 20s) {
    if (connectTo(name)) ++calls;
  }
  CHECK(std::chrono::steady_clock::now() - start < 15s);
  CHECK(calls > 0);
  CHECK(server.wait().find("rank 1 of 2 is missing") != std::string::npos);
}

TEST_CASE("silent clients do not delay a rank") {
  const UniqueId uniqueId = TcpBootstrap::createUniqueId();
  const std::string job = jobName("a job with silent clients");
  Server server(job, uniqueId, 2, 60s);
  const std::string name = awaitListener(detail::rendezvousPrefix(job));
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(connectTo(name));
  const auto start = std::chrono::steady_clock::now();
  CHECK(detail::fetchUniqueId({job}, 1, Deadline::after(60s)) == uniqueId);
  CHECK(server.wait() == "");
  CHECK(std::chrono::steady_clock::now() - start < 15s);  // each client may take up to a second
}

TEST_CASE("a process of another user gets no UniqueId and is not accepted as a rank") {
  if (::geteuid() != 0) return;  // only root can become another user
  const UniqueId uniqueId = TcpBootstrap::createUniqueId();
  const std::string job = jobName("a job that another user joins");
  Server server(job, uniqueId, 2);
  const std::string name = awaitListener(detail::rendezvousPrefix(job));
  ChildProcess attacker([&] {
    becomeOtherUser();
    const UniqueFd socket = connectTo(name);
    const std::int32_t rank = 1;
    char byte;
    detail::sendAll(socket, &rank, sizeof(rank), Deadline::after(5s));
    const auto received = detail::recvAll(socket, &byte, sizeof(byte), Deadline::after(10s));
    if (received != detail::TransferStatus::Closed) throw std::runtime_error("it was served");
  });
  CHECK(attacker.wait() == "");
  CHECK_FALSE(server.ended());
  CHECK(detail::fetchUniqueId({job}, 1, Deadline::after(20s)) == uniqueId);
  CHECK(server.wait() == "");
}

TEST_CASE("sockets of another user at the job's names are ignored") {
  if (::geteuid() != 0) return;  // only root can become another user
  const UniqueId uniqueId = TcpBootstrap::createUniqueId();
  const std::string job = jobName("a job that another user offers"), prefix = detail::rendezvousPrefix(job);
  ChildProcess attacker([&] {
    becomeOtherUser();
    const UniqueFd listener = detail::listenLocal(prefix + std::string(32, '0'));
    const UniqueId forged{};
    while (detail::waitReadable(listener, Deadline::after(60s))) {
      const UniqueFd client = detail::acceptFrom(listener);
      if (client) detail::sendAll(client, forged.data(), forged.size(), Deadline::after(1s));
    }
  });
  CHECK(awaitListener(prefix) == prefix + std::string(32, '0'));
  CHECK_THROWS_WITH_AS(detail::fetchUniqueId({job}, 1, Deadline::after(300ms)),
                       doctest::Contains("did not find rank 0"), Error);
  Server server(job, uniqueId, 2);
  CHECK(detail::fetchUniqueId({job}, 1, Deadline::after(20s)) == uniqueId);
  CHECK(server.wait() == "");
}
