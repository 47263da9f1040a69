#include "mscclpp/host/communicator/registered_buffers.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

char* bytesOf(const HostBuffer& memory) {
  return static_cast<char*>(memory.data());
}

// What a lookup finds, as an offset; -1: nothing.
long offsetIn(const RegisteredBuffers& buffers, const RegisteredBuffer& expected, const char* pointer,
              std::size_t bytes) {
  const auto match = buffers.find(pointer, bytes);
  if (!match) return -1;
  CHECK(match->buffer == &expected);
  return static_cast<long>(match->offset);
}

// `buffers` outlive the ranks' memory by handles that have ended.
void lookUp(std::shared_ptr<Bootstrap> bootstrap) {
  Communicator communicator(bootstrap);
  const HostBuffer memory(10'000);
  const HostBuffer other(500);
  char* data = bytesOf(memory) + 16 * bootstrap->getRank();
  RegisteredBuffers buffers;
  CHECK_FALSE(buffers.find(data, 1).has_value());
  CHECK_FALSE(buffers.find(nullptr, 0).has_value());

  auto first = buffers.add(RegisteredBuffer(communicator, data + 1000, 1000));
  const auto second = buffers.add(RegisteredBuffer(communicator, other.data(), other.bytes()));
  CHECK(first.buffer().local() == data + 1000);
  CHECK(offsetIn(buffers, first.buffer(), data + 1000, 1000) == 0);
  CHECK(offsetIn(buffers, first.buffer(), data + 1000, 0) == 0);
  CHECK(offsetIn(buffers, first.buffer(), data + 1999, 1) == 999);
  CHECK(offsetIn(buffers, first.buffer(), data + 1500, 500) == 500);
  CHECK(offsetIn(buffers, second.buffer(), bytesOf(other) + 1, 2) == 1);
  CHECK_FALSE(buffers.find(data + 1000, 1001).has_value());
  CHECK_FALSE(buffers.find(data + 999, 1).has_value());
  CHECK_FALSE(buffers.find(data + 999, 500).has_value());
  CHECK_FALSE(buffers.find(data + 1500, 501).has_value());
  CHECK_FALSE(buffers.find(data + 2000, 0).has_value());
  CHECK_FALSE(buffers.find(data + 1001, static_cast<std::size_t>(-1)).has_value());

  // The addresses are those of all ranks.
  const auto match = buffers.find(data + 1004, 8);
  REQUIRE(match.has_value());
  const int next = (bootstrap->getRank() + 1) % bootstrap->getNranks();
  *match->buffer->window().subWindow(match->offset).at(next, 3) = std::byte{42};
  bootstrap->barrier();
  CHECK(data[1007] == 42);

  // Of several registrations the last one counts, also around and within others.
  auto whole = std::optional(buffers.add(RegisteredBuffer(communicator, data, 5000)));
  CHECK(offsetIn(buffers, whole->buffer(), data + 1500, 100) == 1500);
  CHECK(offsetIn(buffers, whole->buffer(), data + 4000, 100) == 4000);
  {
    const auto same = buffers.add(RegisteredBuffer(communicator, data, 5000));
    const auto part = buffers.add(RegisteredBuffer(communicator, data + 1400, 200));
    CHECK(offsetIn(buffers, part.buffer(), data + 1500, 100) == 100);
    CHECK(offsetIn(buffers, same.buffer(), data + 1500, 101) == 1500);
  }
  CHECK(offsetIn(buffers, whole->buffer(), data + 1500, 101) == 1500);
  whole.reset();
  CHECK(offsetIn(buffers, first.buffer(), data + 1500, 100) == 500);

  // A handle that is moved keeps the registration, and one that is assigned to ends its own.
  const RegisteredBuffer* registration = &first.buffer();
  RegisteredBuffers::Handle moved = std::move(first);
  CHECK(&moved.buffer() == registration);
  CHECK_THROWS_WITH_AS(first.buffer(), doctest::Contains("keeps no registration"), Error);
  CHECK(offsetIn(buffers, *registration, data + 1500, 100) == 500);
  const RegisteredBuffers elsewhere = std::move(buffers);
  CHECK(offsetIn(elsewhere, *registration, data + 1500, 100) == 500);
  moved = RegisteredBuffers::Handle();
  CHECK_FALSE(elsewhere.find(data + 1500, 100).has_value());
  CHECK(offsetIn(elsewhere, second.buffer(), bytesOf(other), 500) == 0);
  bootstrap->barrier();
}

}  // namespace

TEST_CASE("registered buffers are found by address, ranks as threads") {
  for (const int ranks : {1, 3}) runAsThreads(ranks, lookUp);
}
TEST_CASE("registered buffers are found by address, ranks as processes") {
  runAsProcesses(2, "one process looks up buffers");
}
TEST_CASE("one process looks up buffers" * doctest::skip()) {
  lookUp(bootstrapOfProcess());
}

TEST_CASE("registered buffers have the same size on all ranks, and may have none") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    Communicator communicator(bootstrap);
    const HostBuffer memory(100);
    RegisteredBuffers buffers;
    const std::size_t bytes = 50 + static_cast<std::size_t>(bootstrap->getRank());
    CHECK_THROWS_WITH_AS(static_cast<void>(buffers.add(RegisteredBuffer(communicator, memory.data(), bytes))),
                         doctest::Contains("rank 0 has registered 50 bytes, but rank 1 51"), Error);
    CHECK_FALSE(buffers.find(memory.data(), 10).has_value());
    const auto empty = buffers.add(RegisteredBuffer(communicator, nullptr, 0));
    CHECK_FALSE(buffers.find(nullptr, 0).has_value());
    // A handle may outlive the table.
    auto table = std::make_unique<RegisteredBuffers>();
    const auto kept = table->add(RegisteredBuffer(communicator, memory.data(), 100));
    table.reset();
    CHECK(kept.buffer().bytes() == 100);
    bootstrap->barrier();
  });
}

TEST_CASE("host memory that was freed stays allocated as long as its registration") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    Communicator communicator(bootstrap);
    RegisteredBuffers buffers;
    auto memory = std::make_unique<HostBuffer>(100);
    const char* data = bytesOf(*memory);
    auto handle = std::optional(buffers.add(RegisteredBuffer(communicator, memory->data(), 100)));
    memory.reset();
    CHECK(buffers.find(data, 100).has_value());
    handle.reset();
    CHECK_FALSE(buffers.find(data, 100).has_value());
    bootstrap->barrier();
  });
}
