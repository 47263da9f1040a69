#include "../../host/fd_server.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/host/error.hpp"
#include "process_resources.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;
using namespace mscclpp::test;

namespace {

Deadline soon() {
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

TEST_CASE("a descriptor is fetched as often as wanted, until its offer ends") {
  const std::size_t descriptors = openDescriptors();
  const std::size_t threads = liveThreads();
  {
    auto server = FdServer::create();
    const UniqueFd a = memoryWith("first");
    const UniqueFd b = memoryWith("second");
    auto offerA = server->offer(a.get(), nullptr);
    auto offerB = server->offer(b.get(), nullptr);
    for (int i = 0; i < 20; ++i) {
      CHECK(textIn(FdServer::fetch(offerA->key(), soon())) == "first");
      CHECK(textIn(FdServer::fetch(offerB->key(), soon())) == "second");
    }
    const auto key = offerA->key();
    offerA.reset();
    CHECK_THROWS_AS(FdServer::fetch(key, soon()), Error);
    CHECK(textIn(FdServer::fetch(offerB->key(), soon())) == "second");
    server.reset();  // an offer keeps the server
    CHECK(textIn(FdServer::fetch(offerB->key(), soon())) == "second");
    const auto last = offerB->key();
    offerB.reset();
    CHECK_THROWS_WITH_AS(FdServer::fetch(last, soon()), doctest::Contains("gone"), Error);
  }
  CHECK(openDescriptors() == descriptors);
  CHECK(threadsReturnTo(threads));
}

TEST_CASE("many threads fetch at once") {
  auto server = FdServer::create();
  const UniqueFd memory = memoryWith("shared");
  auto offer = server->offer(memory.get(), nullptr);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) right += textIn(FdServer::fetch(offer->key(), soon())) == "shared" ? 1 : 0;
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(right == 400);
}

TEST_CASE("strangers disturb nothing") {
  const std::size_t descriptors = openDescriptors();
  {
    auto server = FdServer::create();
    const UniqueFd memory = memoryWith("precious");
    auto offer = server->offer(memory.get(), nullptr);
    std::mt19937 random(1);
    const auto half = offer->key();
    std::vector<int> silent;
    for (int i = 0; i < 200; ++i) {
      const int socket = connectTo(offer->key().server);
      REQUIRE(socket >= 0);
      switch (i % 4) {
        case 0: {  // garbage of some length
          std::vector<char> garbage(random() % 64);
          for (auto& byte : garbage) byte = static_cast<char>(random());
          static_cast<void>(::send(socket, garbage.data(), garbage.size(), MSG_NOSIGNAL));
          ::close(socket);
          break;
        }
        case 1: {  // a well-formed but unknown token
          const Id128 token = randomId();
          static_cast<void>(::send(socket, token.data(), token.size(), MSG_NOSIGNAL));
          char answer;
          CHECK(::recv(socket, &answer, 1, 0) <= 0);
          ::close(socket);
          break;
        }
        case 2:  // half a token, then nothing
          static_cast<void>(::send(socket, half.token.data(), 8, MSG_NOSIGNAL));
          if (silent.size() < 20) {
            silent.push_back(socket);
          } else {
            ::close(socket);
          }
          break;
        default:  // nothing at all
          ::close(socket);
      }
      if (i % 10 == 0) CHECK(textIn(FdServer::fetch(offer->key(), soon())) == "precious");
    }
    CHECK(textIn(FdServer::fetch(offer->key(), soon())) == "precious");
    for (int socket : silent) ::close(socket);
  }
  CHECK(openDescriptors() == descriptors);
}

TEST_CASE("silent strangers that take every seat are shown out") {
  auto server = FdServer::create();
  const UniqueFd memory = memoryWith("precious");
  auto offer = server->offer(memory.get(), nullptr);
  std::vector<int> silent;
  for (int i = 0; i < 80; ++i) silent.push_back(connectTo(offer->key().server));
  CHECK(textIn(FdServer::fetch(offer->key(), Deadline::after(std::chrono::seconds(15)))) == "precious");
  for (int socket : silent) ::close(socket);
}

TEST_CASE("another user gets nothing" * doctest::skip(::geteuid() != 0)) {
  auto server = FdServer::create();
  const UniqueFd memory = memoryWith("precious");
  auto offer = server->offer(memory.get(), nullptr);
  const auto key = offer->key();
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
  CHECK(textIn(FdServer::fetch(key, soon())) == "precious");
}

TEST_CASE("nothing is taken from another user" * doctest::skip(::geteuid() != 0)) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setuid(65534) != 0) ::_exit(2);
    auto server = FdServer::create();
    const UniqueFd memory(::memfd_create("bait", MFD_CLOEXEC));
    auto offer = server->offer(memory.get(), nullptr);
    const auto key = offer->key();
    if (::write(ends[1], &key, sizeof(key)) != sizeof(key)) ::_exit(3);
    while (true) ::pause();
  }
  FdServer::Key key;
  REQUIRE(::read(ends[0], &key, sizeof(key)) == sizeof(key));
  CHECK_THROWS_WITH_AS(FdServer::fetch(key, soon()), doctest::Contains("belongs to another user"), Error);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("the name is not to be guessed") {
  auto a = FdServer::create();
  auto b = FdServer::create();
  const UniqueFd memory = memoryWith("x");
  const auto first = a->offer(memory.get(), nullptr)->key();
  const auto second = a->offer(memory.get(), nullptr)->key();
  CHECK(first.server == second.server);
  CHECK(first.token != second.token);
  CHECK(first.server != b->offer(memory.get(), nullptr)->key().server);
}
