// What waits to be received has a limit, and failures say how long the call had waited.
#include "../../host/mesh.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "mscclpp/host/error.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t limit = 1000;

struct Pair {
  Pair() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
    sender.addPeer(1, UniqueFd(ends[0]));
    receiver.addPeer(0, UniqueFd(ends[1]));
  }
  void send(int tag, std::size_t bytes) {
    const std::vector<char> message(bytes);
    sender.send(1, tag, message.data(), bytes, "send", Deadline::after(20s));
  }
  void recv(int tag, std::size_t bytes) {
    std::vector<char> message(bytes);
    receiver.recv(0, tag, message.data(), bytes, "recv", Deadline::after(20s));
  }

  Mesh sender{0, 2, 0ms};
  Mesh receiver{1, 2, 0ms, limit};
};

}  // namespace

TEST_CASE("what is received makes room for more") {
  Pair pair;
  for (int i = 0; i < 10; ++i) {
    pair.send(1, 600);
    pair.recv(1, 600);
  }
  pair.send(1, limit);
  pair.recv(1, limit);
}

TEST_CASE("a peer whose messages nobody receives counts as failed beyond the limit") {
  Pair pair;
  SUBCASE("by one message too many") {
    pair.send(1, limit);
    pair.send(2, 1);
  }
  SUBCASE("by one that is too long") {
    pair.send(2, limit + 1);
  }
  try {
    pair.recv(3, 1);
    FAIL("a message came that nobody sent");
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::RemoteError);
    const std::string text = error.what();
    CAPTURE(text);
    CHECK(text.find("rank 0 failed: it sent more than 1000 bytes that nobody here has received, after 0.") !=
          std::string::npos);
  }
}
