#include "host/memory/fd_server.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/host/process_resources.hpp"
#include "tests/host/replaced_new.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;
using namespace mscclpp::test;

namespace {

Deadline shortDeadline() {
  return Deadline::after(std::chrono::seconds(10));
}

UniqueFd memoryWith(const std::string& text) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  REQUIRE(::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  return fd;
}

std::string textIn(const UniqueFd& fd) {
  char text[64] = {};
  const ssize_t count = ::pread(fd.get(), text, sizeof(text), 0);
  return {text, static_cast<std::size_t>(count)};
}

int connectTo(const Id128& server) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string name = "mscclpp-fd-";
  for (auto byte : server) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), length) != 0) {
    ::close(socket);
    return -1;
  }
  return socket;
}

}  // namespace

TEST_CASE("a descriptor can be fetched until its registration ends") {
  const std::size_t descriptors = openDescriptors();
  const std::size_t threads = liveThreads();
  {
    auto server = FdServer::create();
    const UniqueFd a = memoryWith("first");
    const UniqueFd b = memoryWith("second");
    auto registrationA = server->registerFd(a.get(), nullptr);
    auto registrationB = server->registerFd(b.get(), nullptr);
    for (int i = 0; i < 20; ++i) {
      CHECK(textIn(FdServer::fetch(registrationA->key(), shortDeadline())) == "first");
      CHECK(textIn(FdServer::fetch(registrationB->key(), shortDeadline())) == "second");
    }
    const auto key = registrationA->key();
    registrationA.reset();
    CHECK_THROWS_AS(FdServer::fetch(key, shortDeadline()), Error);
    CHECK(textIn(FdServer::fetch(registrationB->key(), shortDeadline())) == "second");
    server.reset();  // a registration keeps the server alive
    CHECK(textIn(FdServer::fetch(registrationB->key(), shortDeadline())) == "second");
    const auto last = registrationB->key();
    registrationB.reset();
    CHECK_THROWS_WITH_AS(FdServer::fetch(last, shortDeadline()), doctest::Contains("gone"), Error);
  }
  CHECK(openDescriptors() == descriptors);
  CHECK(threadCountReturnsTo(threads));
}

TEST_CASE("a server whose thread is out of memory tells its peers and its owner, and is replaced" *
          doctest::skip(!replacesNew)) {
  auto server = FdServer::ofProcess();
  const UniqueFd memory = memoryWith("secret");
  const auto registration = server->registerFd(memory.get(), nullptr);
  const auto start = std::chrono::steady_clock::now();
  std::vector<UniqueFd> silent;
  {
    const FailingAllocations failing;
    // The server keeps an entry for each, until it ends: then none can connect.
    while (silent.size() < 60) {
      UniqueFd client(connectTo(registration->key().server));
      if (!client) break;
      silent.push_back(std::move(client));
    }
    // Every one is disconnected, those included that the server had not accepted.
    for (const UniqueFd& client : silent) {
      char byte;
      CHECK(::recv(client.get(), &byte, 1, 0) <= 0);
    }
  }
  CHECK_THROWS_WITH_AS(FdServer::fetch(registration->key(), shortDeadline()), doctest::Contains("is gone"), Error);
  CHECK_THROWS_WITH_AS(server->registerFd(memory.get(), nullptr),
                       doctest::Contains("an internal error has ended the thread that passes it to them"), Error);
  CHECK(FdServer::ofProcess() != server);
  CHECK(textIn(FdServer::fetch(FdServer::ofProcess()->registerFd(memory.get(), nullptr)->key(), shortDeadline())) ==
        "secret");
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
}

TEST_CASE("many threads fetch at once") {
  auto server = FdServer::create();
  const UniqueFd memory = memoryWith("shared");
  auto registration = server->registerFd(memory.get(), nullptr);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i)
        right += textIn(FdServer::fetch(registration->key(), shortDeadline())) == "shared" ? 1 : 0;
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(right == 400);
}

TEST_CASE("unauthorized clients do not affect the server") {
  const std::size_t descriptors = openDescriptors();
  {
    auto server = FdServer::create();
    const UniqueFd memory = memoryWith("secret");
    auto registration = server->registerFd(memory.get(), nullptr);
    std::mt19937 random(1);
    const auto partialKey = registration->key();
    std::vector<int> silent;
    for (int i = 0; i < 200; ++i) {
      const int socket = connectTo(registration->key().server);
      REQUIRE(socket >= 0);
      switch (i % 4) {
        case 0: {  // garbage of random length
          std::vector<char> garbage(random() % 64);
          for (auto& byte : garbage) byte = static_cast<char>(random());
          static_cast<void>(::send(socket, garbage.data(), garbage.size(), MSG_NOSIGNAL));
          ::close(socket);
          break;
        }
        case 1: {  // a valid but unknown token
          const Id128 token = randomId();
          static_cast<void>(::send(socket, token.data(), token.size(), MSG_NOSIGNAL));
          char answer;
          CHECK(::recv(socket, &answer, 1, 0) <= 0);
          ::close(socket);
          break;
        }
        case 2:  // half a token, then nothing
          static_cast<void>(::send(socket, partialKey.token.data(), 8, MSG_NOSIGNAL));
          if (silent.size() < 20) {
            silent.push_back(socket);
          } else {
            ::close(socket);
          }
          break;
        default:  // nothing at all
          ::close(socket);
      }
      if (i % 10 == 0) CHECK(textIn(FdServer::fetch(registration->key(), shortDeadline())) == "secret");
    }
    CHECK(textIn(FdServer::fetch(registration->key(), shortDeadline())) == "secret");
    for (int socket : silent) ::close(socket);
  }
  CHECK(openDescriptors() == descriptors);
}

TEST_CASE("silent clients do not delay others, and the oldest are disconnected") {
  auto server = FdServer::create();
  const UniqueFd memory = memoryWith("secret");
  auto registration = server->registerFd(memory.get(), nullptr);
  std::vector<int> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(connectTo(registration->key().server));
  CHECK(textIn(FdServer::fetch(registration->key(), Deadline::after(std::chrono::seconds(2)))) == "secret");
  // The first gets the byte 2, "busy", and nothing else.
  char answer = 0;
  CHECK(::recv(silent[0], &answer, 1, 0) == 1);
  CHECK(answer == 2);
  CHECK(::recv(silent[0], &answer, 1, 0) == 0);
  for (int socket : silent) ::close(socket);
}

TEST_CASE("an evicted client retries") {
  auto server = FdServer::create();
  const UniqueFd memory = memoryWith("secret");
  auto registration = server->registerFd(memory.get(), nullptr);
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    std::deque<UniqueFd> silent;
    while (!stop) {
      silent.emplace_back(connectTo(registration->key().server));
      if (silent.size() > 300) silent.pop_front();
    }
  });
  int right = 0;
  for (int i = 0; i < 100; ++i) right += textIn(FdServer::fetch(registration->key(), shortDeadline())) == "secret";
  stop = true;
  flood.join();
  CHECK(right == 100);
}

TEST_CASE("a process that has no descriptors left still exports its memory") {
  auto server = FdServer::create();
  const UniqueFd memory = memoryWith("secret");
  auto registration = server->registerFd(memory.get(), nullptr);
  const auto key = registration->key();
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char word;
    static_cast<void>(::read(ends[0], &word, 1) == 1);
    int fetched = 0;
    try {
      while (fetched < 10 && textIn(FdServer::fetch(key, Deadline::after(std::chrono::seconds(2)))) == "secret") {
        ++fetched;
      }
    } catch (const BaseError&) {  // the count shows how far it got
    }
    ::_exit(fetched);
  }
  int status = 0;
  {
    const DescriptorLimit exhausted(0);
    CHECK(::write(ends[1], "x", 1) == 1);
    REQUIRE(::waitpid(child, &status, 0) == child);
  }
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 10);
  for (int end : ends) ::close(end);
}

TEST_CASE("a process that has no descriptors left gets an error at once") {
  // The server is a separate process: here it would use descriptors of this one.
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto server = FdServer::create();
    const UniqueFd memory(::memfd_create("offered", MFD_CLOEXEC));
    auto registration = server->registerFd(memory.get(), nullptr);
    const auto key = registration->key();
    if (::write(ends[1], &key, sizeof(key)) != sizeof(key)) ::_exit(3);
    while (true) ::pause();
  }
  FdServer::Key key;
  REQUIRE(::read(ends[0], &key, sizeof(key)) == sizeof(key));
  for (std::size_t free : {0U, 1U}) {  // none for the socket; one for the socket, and none for what arrives
    CAPTURE(free);
    std::string text;
    const auto begin = std::chrono::steady_clock::now();
    {
      const DescriptorLimit exhausted(free);
      try {
        FdServer::fetch(key, Deadline::after(std::chrono::seconds(60)));
      } catch (const BaseError& error) {
        text = error.what();
      }
    }
    CAPTURE(text);
    CHECK(text.find("memory descriptor") != std::string::npos);
    CHECK(text.find("Too many open files") != std::string::npos);
    CHECK(text.find("ulimit -n") != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(15));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (int end : ends) ::close(end);
}

// ThreadSanitizer does not know the parent's threads in a forked child.
TEST_CASE("a forked child that closes its copies, or keeps them, does not affect the parent" *
          doctest::skip(detectsRaces)) {
  auto server = FdServer::create();
  const UniqueFd memory = memoryWith("secret");
  auto registration = server->registerFd(memory.get(), nullptr);
  const auto key = registration->key();
  const pid_t dropping = ::fork();
  if (dropping == 0) {
    ::alarm(20);
    registration.reset();
    server.reset();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(dropping, &status, 0) == dropping);
  CHECK(WIFEXITED(status));
  CHECK(textIn(FdServer::fetch(key, shortDeadline())) == "secret");

  const pid_t keeping = ::fork();
  if (keeping == 0) {
    ::alarm(20);
    ::pause();
    ::_exit(0);
  }
  registration.reset();
  server.reset();
  // The child's copy of the socket would still listen, and never reply.
  CHECK_THROWS_WITH_AS(FdServer::fetch(key, Deadline::after(std::chrono::seconds(2))), doctest::Contains("gone"),
                       Error);
  ::kill(keeping, SIGKILL);
  ::waitpid(keeping, nullptr, 0);
}

TEST_CASE("a client of another user gets nothing" * doctest::skip(::geteuid() != 0)) {
  auto server = FdServer::create();
  const UniqueFd memory = memoryWith("secret");
  auto registration = server->registerFd(memory.get(), nullptr);
  const auto key = registration->key();
  // The child calls only what is safe after fork in a process with threads.
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setuid(65534) != 0) ::_exit(2);
    const int socket = connectTo(key.server);
    if (socket < 0) ::_exit(0);
    static_cast<void>(::send(socket, key.token.data(), key.token.size(), MSG_NOSIGNAL));
    char answer;
    ::_exit(::recv(socket, &answer, 1, 0) <= 0 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(textIn(FdServer::fetch(key, shortDeadline())) == "secret");
}

TEST_CASE("a descriptor from another user is rejected" * doctest::skip(::geteuid() != 0)) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setuid(65534) != 0) ::_exit(2);
    auto server = FdServer::create();
    const UniqueFd memory(::memfd_create("bait", MFD_CLOEXEC));
    auto registration = server->registerFd(memory.get(), nullptr);
    const auto key = registration->key();
    if (::write(ends[1], &key, sizeof(key)) != sizeof(key)) ::_exit(3);
    while (true) ::pause();
  }
  FdServer::Key key;
  REQUIRE(::read(ends[0], &key, sizeof(key)) == sizeof(key));
  CHECK_THROWS_WITH_AS(FdServer::fetch(key, shortDeadline()), doctest::Contains("belongs to another user"), Error);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("a process has one server, and so has a forked child" * doctest::skip(!allocatesInForks)) {
  const std::size_t descriptors = openDescriptors();
  const std::size_t threads = liveThreads();
  const UniqueFd memory = memoryWith("shared");
  {
    const auto server = FdServer::ofProcess();
    CHECK(FdServer::ofProcess() == server);
    const auto registration = server->registerFd(memory.get(), nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      const auto own = FdServer::ofProcess();
      const auto ofChild = own->registerFd(memory.get(), nullptr);
      const bool isServed = textIn(FdServer::fetch(ofChild->key(), shortDeadline())) == "shared" &&
                            textIn(FdServer::fetch(registration->key(), shortDeadline())) == "shared";
      ::_exit(own != server && isServed ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  // It has ended with its last user, and the next one starts another.
  CHECK(openDescriptors() == descriptors + 1);  // the memory
  CHECK(threadCountReturnsTo(threads));
  CHECK(textIn(FdServer::fetch(FdServer::ofProcess()->registerFd(memory.get(), nullptr)->key(), shortDeadline())) ==
        "shared");
}

TEST_CASE("names and tokens are random") {
  auto a = FdServer::create();
  auto b = FdServer::create();
  const UniqueFd memory = memoryWith("x");
  const auto first = a->registerFd(memory.get(), nullptr)->key();
  const auto second = a->registerFd(memory.get(), nullptr)->key();
  CHECK(first.server == second.server);
  CHECK(first.token != second.token);
  CHECK(first.server != b->registerFd(memory.get(), nullptr)->key().server);
}
