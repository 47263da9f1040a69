// Runs a test body on several ranks: as threads, or as processes that execute this test program again.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "socketpair_bootstrap.hpp"
#include "tests/test_case_filter.hpp"

namespace mscclpp::test {

using RankBody = std::function<void(std::shared_ptr<Bootstrap>)>;

/// After this long ranks hang. They take seconds, or a minute under AddressSanitizer in the emulated VM of a busy
/// machine.
inline constexpr std::chrono::seconds hangLimit{180};

/// Runs `body` on `nRanks` threads. An exception of the body fails the test.
inline void runAsThreads(int nRanks, const RankBody& body) {
  auto mesh = SocketpairBootstrap::makeSocketMesh(nRanks);
  std::vector<std::string> failures(static_cast<std::size_t>(nRanks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nRanks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(std::make_shared<SocketpairBootstrap>(rank, mesh[static_cast<std::size_t>(rank)]));
      } catch (const std::exception& error) {
        failures[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures) CHECK(failure == "");
}

/// Starts this program once per rank, to run only the test case `testCase`. That case is marked doctest::skip() and
/// gets its bootstrap from bootstrapOfProcess(). A rank that fails, or runs longer than `limit`, fails the test. Rank
/// `killedRank` must be killed by SIGKILL. If `variables` are given, rank i has variables[i], "NAME=value", in its
/// environment.
inline void runAsProcesses(int nRanks, const std::string& testCase, std::chrono::seconds limit = hangLimit,
                           int killedRank = -1, const std::vector<std::string>& variables = {}) {
  auto mesh = SocketpairBootstrap::makeSocketMesh(nRanks);
  std::vector<pid_t> children;
  for (int rank = 0; rank < nRanks; ++rank) {
    const auto& sockets = mesh[static_cast<std::size_t>(rank)];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    std::string list;
    for (int socket : sockets) {
      // Duplicating a descriptor onto itself makes the child inherit it.
      if (socket >= 0) posix_spawn_file_actions_adddup2(&actions, socket, socket);
      list += std::to_string(socket) + ' ';
    }
    std::vector<std::string> words;
    const std::string own = variables.empty() ? "" : variables[static_cast<std::size_t>(rank)];
    const std::string ownName = own.substr(0, own.find('=') + 1);
    for (char** variable = environ; *variable != nullptr; ++variable) {
      if (own.empty() || !std::string_view(*variable).starts_with(ownName)) words.emplace_back(*variable);
    }
    if (!own.empty()) words.push_back(own);
    words.push_back("MSCCLPP_TEST_RANK=" + std::to_string(rank));
    words.push_back("MSCCLPP_TEST_SOCKETS=" + list);
    std::vector<char*> environment;
    for (auto& word : words) environment.push_back(word.data());
    environment.push_back(nullptr);
    std::string arguments[] = {"rank", "--test-case=" + asFilter(testCase), "--no-skip", "--minimal", "--no-intro"};
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_t child = -1;
    REQUIRE(posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environment.data()) == 0);
    posix_spawn_file_actions_destroy(&actions);
    children.push_back(child);
  }
  for (const auto& sockets : mesh) {
    for (int socket : sockets) {
      if (socket >= 0) ::close(socket);
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (std::size_t rank = 0; rank < children.size(); ++rank) {
    int status = 0;
    pid_t ended;
    while ((ended = ::waitpid(children[rank], &status, WNOHANG)) == 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    CAPTURE(rank);
    if (ended == 0) {
      ::kill(children[rank], SIGKILL);
      ::waitpid(children[rank], &status, 0);
      CHECK_MESSAGE(false, "a rank did not end in time");
      continue;
    }
    if (static_cast<int>(rank) == killedRank) {
      CHECK(WIFSIGNALED(status));
      CHECK(WTERMSIG(status) == SIGKILL);
      continue;
    }
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}

/// The bootstrap of this rank, in a process started by runAsProcesses.
inline std::shared_ptr<Bootstrap> bootstrapOfProcess() {
  const char* rank = std::getenv("MSCCLPP_TEST_RANK");
  const char* list = std::getenv("MSCCLPP_TEST_SOCKETS");
  if (rank == nullptr || list == nullptr) throw Error("started by another test case only", ErrorCode::InvalidUsage);
  std::istringstream words(list);
  std::vector<int> sockets;
  for (int socket; words >> socket;) sockets.push_back(socket);
  return std::make_shared<SocketpairBootstrap>(std::atoi(rank), std::move(sockets));
}

/// A bootstrap over TCP, which detects failed ranks, between the ranks of `rendezvous`. By default a stopped rank
/// counts as failed after MSCCLPP_HEARTBEAT_TIMEOUT.
inline std::shared_ptr<TcpBootstrap> tcpBootstrapOver(
    Bootstrap& rendezvous, std::optional<std::chrono::milliseconds> heartbeatTimeout = std::nullopt) {
  UniqueId id{};
  if (rendezvous.getRank() == 0) id = TcpBootstrap::createUniqueId();
  std::vector<UniqueId> ids(static_cast<std::size_t>(rendezvous.getNranks()), id);
  rendezvous.allGather(ids.data(), sizeof(UniqueId));
  auto bootstrap = std::make_shared<TcpBootstrap>(rendezvous.getRank(), rendezvous.getNranks());
  if (heartbeatTimeout) bootstrap->setHeartbeatTimeout(*heartbeatTimeout);
  bootstrap->initialize(ids[0]);
  return bootstrap;
}

}  // namespace mscclpp::test
