// Frames of a rank that has joined and does not keep to the rules; and that what waits to be received has a limit.
#include "../../host/mesh.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdint>
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
  SUBCASE("by empty ones, which take room too") {
    pair.send(4, 0);
    pair.send(5, 0);
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

TEST_CASE("bytes that are no message end the connection, whatever they announce") {
  struct Header {
    std::uint32_t frame;
    std::int32_t tag;
    std::uint64_t size;
  };
  constexpr std::uint32_t message = 1, heartbeat = 2, failure = 4;
  struct Case {
    Header header;
    const char* text;
  };
  for (const Case& bad :
       {Case{{0, 1, 1}, "no message"}, Case{{5, 1, 1}, "no message"},
        Case{{message, 1, std::uint64_t{1} << 31}, "no message"}, Case{{message, 1, UINT64_MAX}, "no message"},
        Case{{heartbeat, 0, 4096}, "no message"}, Case{{failure, 2, 0}, "a rank that does not exist"},
        Case{{failure, -1, 0}, "a rank that does not exist"}, Case{{message, 1, 100}, "closed without a farewell"}}) {
    CAPTURE(bad.header.frame);
    CAPTURE(bad.header.size);
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
    UniqueFd liar(ends[0]);
    Mesh mesh(1, 2, 0ms);
    mesh.addPeer(0, UniqueFd(ends[1]));
    REQUIRE(::send(liar.get(), &bad.header, sizeof(bad.header), 0) == sizeof(bad.header));
    if (std::string(bad.text).find("closed") != std::string::npos) liar = UniqueFd();  // in the middle of a message
    char byte;
    CHECK_THROWS_WITH_AS(mesh.recv(0, 1, &byte, 1, "recv", Deadline::after(20s)), doctest::Contains(bad.text), Error);
  }
}
