// Rank 0's offer of a token to the ranks of its host, in the presence of callers that are none.
#include "../../host/token_exchange.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "../../host/unique_fd.hpp"
#include "mscclpp/host/error.hpp"

using namespace mscclpp;
using namespace std::chrono_literals;

namespace {

/// The name of this process's socket that offers tokens; empty if there is none (yet).
std::string nameOfOffer() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the folder's own descriptor
    own.insert(std::filesystem::read_symlink(entry.path(), gone).string());
  }
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    std::istringstream words(line);
    std::string word, inode, name;
    for (int column = 0; column < 6; ++column) words >> word;
    if (words >> inode >> name && own.contains("socket:[" + inode + "]") && name.starts_with("@mscclpp-")) return name;
  }
  return "";
}

}  // namespace

TEST_CASE("each rank takes the token") {
  const UniqueId token = TcpBootstrap::createUniqueId();
  const std::string job = "a job of process " + std::to_string(::getpid());
  const auto deadline = detail::Deadline::after(20s);
  std::thread offering([&] { detail::offerToken(job, token, 3, deadline); });
  CHECK(detail::takeToken(job, 2, deadline) == token);
  CHECK(detail::takeToken(job, 1, deadline) == token);
  offering.join();
}

TEST_CASE("callers that come and go without end do not keep rank 0 waiting") {
  std::atomic<bool> ended = false;
  std::string text;
  const auto start = std::chrono::steady_clock::now();
  std::thread offering([&] {
    try {
      detail::offerToken("a flooded job of process " + std::to_string(::getpid()), UniqueId{}, 2,
                         detail::Deadline::after(1s));
    } catch (const Error& error) {
      text = error.what();
    }
    ended = true;
  });
  std::string name;
  while (name.empty() && !ended) name = nameOfOffer();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, sizeof(address.sun_path));
  if (!name.empty()) address.sun_path[0] = '\0';  // shown as '@'
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  int calls = 0;
  while (!ended && std::chrono::steady_clock::now() - start < 20s) {
    const detail::UniqueFd caller(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(caller.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0) ++calls;
  }
  CHECK(std::chrono::steady_clock::now() - start < 15s);
  offering.join();
  CHECK(calls > 0);
  CHECK(text.find("missing 1 of 2") != std::string::npos);
}
