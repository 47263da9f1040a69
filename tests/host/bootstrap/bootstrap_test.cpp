// What every bootstrap has from its base class, over a bootstrap whose peer sends what a test wants.
#include "mscclpp/host/bootstrap/bootstrap.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <deque>
#include <vector>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp {
namespace {

/// One of two ranks: it receives `messages`, and then times out.
class ScriptedBootstrap : public Bootstrap {
 public:
  std::deque<std::vector<char>> messages;

  int getRank() const override { return 0; }
  int getNranks() const override { return 2; }
  int getNranksPerNode() const override { return 2; }
  void send(void* data, int size, int, int) override {
    const auto* bytes = static_cast<const char*>(data);
    messages.emplace_back(bytes, bytes + size);
  }
  void recv(void* data, int size, int, int) override {
    if (messages.empty()) throw Error("recv: nothing was sent", ErrorCode::Timeout);
    REQUIRE(messages.front().size() == static_cast<std::size_t>(size));
    std::memcpy(data, messages.front().data(), messages.front().size());
    messages.pop_front();
  }
  void allGather(void*, int) override {}
  void barrier() override {}
};

TEST_CASE("a vector comes as it was sent, in as many messages as it needs") {
  ScriptedBootstrap scripted;
  Bootstrap& bootstrap = scripted;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, (std::size_t{1} << 24) + 5}) {
    CAPTURE(bytes);
    std::vector<char> sent(bytes);
    for (std::size_t i = 0; i < bytes; ++i) sent[i] = static_cast<char>(i * 7);
    bootstrap.send(sent, 1, 3);
    std::vector<char> received(10, 'x');
    bootstrap.recv(received, 1, 3);
    CHECK((received == sent));
    CHECK(scripted.messages.empty());
  }
}

TEST_CASE("a length that a peer announces costs no memory before its bytes arrive") {
  ScriptedBootstrap scripted;
  Bootstrap& bootstrap = scripted;
  std::uint64_t length = Bootstrap::MaxVectorBytes;
  scripted.send(&length, sizeof(length), 1, 3);
  std::vector<char> received;
  CHECK_THROWS_WITH_AS(bootstrap.recv(received, 1, 3), doctest::Contains("nothing was sent"), Error);
  CHECK(received.capacity() <= std::size_t{1} << 25);

  length = Bootstrap::MaxVectorBytes + 1;
  scripted.send(&length, sizeof(length), 1, 3);
  CHECK_THROWS_WITH_AS(bootstrap.recv(received, 1, 3), doctest::Contains("more than the limit"), Error);
}

}  // namespace
}  // namespace mscclpp
