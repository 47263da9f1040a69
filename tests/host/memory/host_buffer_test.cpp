#include "mscclpp/host/memory/host_buffer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/transport/context.hpp"
#include "tests/host/process_resources.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

TEST_CASE("host memory is zero, aligned and of any size") {
  for (std::size_t bytes : {1, 63, 4096, 4097, 1 << 20}) {
    const HostBuffer buffer(bytes);
    REQUIRE(buffer.data() != nullptr);
    CHECK(buffer.bytes() == bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
    const auto* begin = static_cast<const char*>(buffer.data());
    CHECK(std::all_of(begin, begin + bytes, [](char byte) { return byte == 0; }));
  }
  CHECK(HostBuffer().data() == nullptr);
  CHECK(HostBuffer(0).data() == nullptr);
  CHECK(HostBuffer(0).bytes() == 0);
  CHECK_THROWS_AS(HostBuffer(SIZE_MAX), BaseError);
  CHECK_THROWS_AS(HostBuffer(std::size_t{1} << 60), SysError);
}

TEST_CASE("a host buffer can be moved, has a name, and is released") {
  const std::size_t before = openDescriptors();
  {
    HostBuffer buffer(100, "mscclpp-scratch");
    std::ifstream maps("/proc/self/maps");
    const std::string text(std::istreambuf_iterator<char>(maps), {});
    CHECK(text.find("mscclpp-scratch") != std::string::npos);
    void* data = buffer.data();
    HostBuffer other = std::move(buffer);
    CHECK(other.data() == data);
    CHECK(buffer.data() == nullptr);  // NOLINT: a moved-from buffer is empty
    CHECK(buffer.bytes() == 0);
    auto kept = other.memory();
    other = HostBuffer();
    std::memset(kept.get(), 1, 100);
  }
  CHECK(openDescriptors() == before);
}

TEST_CASE("only memory of a host buffer can be shared") {
  auto context = Context::create();
  std::vector<char> plain(64);
  CHECK_THROWS_WITH_AS(context->registerMemory(plain.data(), plain.size(), Transport::SharedMemory),
                       doctest::Contains("HostBuffer"), Error);
  HostBuffer buffer(4096);
  auto* data = static_cast<char*>(buffer.data());
  CHECK_THROWS_AS(context->registerMemory(data + 1, 4096, Transport::SharedMemory), Error);
  CHECK_THROWS_AS(context->registerMemory(data, 0, Transport::SharedMemory), Error);
  CHECK_THROWS_AS(context->registerMemory(nullptr, 1, Transport::SharedMemory), Error);
  CHECK_THROWS_AS(context->registerMemory(buffer.data(), SIZE_MAX, NoTransports), Error);
  CHECK_THROWS_AS(context->registerMemory(data, 1, Transport::IB0), Error);
  CHECK(context->registerMemory(data + 100, 3996, Transport::SharedMemory).data() == data + 100);
  const auto local = context->registerMemory(plain.data(), plain.size(), NoTransports);
  CHECK(local.data() == plain.data());
  CHECK(local.transports() == NoTransports);
}

TEST_CASE("in one process the memory itself is used, and kept alive") {
  auto context = Context::create();
  RegisteredMemory remote;
  {
    HostBuffer buffer(4096);
    std::memset(buffer.data(), 7, 4096);
    const auto memory = context->registerMemory(buffer.data(), buffer.bytes(), Transport::SharedMemory);
    remote = RegisteredMemory::deserialize(memory.serialize());
    CHECK(remote.data() == buffer.data());
    CHECK(remote.originalDataPtr() == buffer.data());
    CHECK(remote.size() == 4096);
  }
  CHECK(static_cast<char*>(remote.data())[4095] == 7);
}

namespace {

// Every rank writes a pattern into its own buffer and into a slot of each peer's; every rank must read all of them.
void shareBuffers(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  const int nRanks = bootstrap->getNranks();
  Communicator communicator(bootstrap);
  constexpr std::size_t count = 5000;
  HostBuffer buffer((count + static_cast<std::size_t>(nRanks)) * sizeof(int));
  auto* own = static_cast<int*>(buffer.data());
  std::iota(own, own + count, rank * 100000);
  const auto memory = communicator.registerMemory(own, buffer.bytes(), Transport::SharedMemory);
  // The same allocation, registered a second time at an offset, must not be mapped twice.
  const auto inner = communicator.registerMemory(own + 1000, 4000, Transport::SharedMemory);
  for (int peer = 0; peer < nRanks; ++peer) {
    if (peer != rank) communicator.sendMemory(memory, peer, 3);
    if (peer != rank) communicator.sendMemory(inner, peer, 3);
  }
  std::vector<RegisteredMemory> kept;
  for (int peer = 0; peer < nRanks; ++peer) {
    if (peer == rank) continue;
    const auto remote = communicator.recvMemory(peer, 3).get();
    const auto remoteInner = communicator.recvMemory(peer, 3).get();
    REQUIRE(remote.size() == buffer.bytes());
    auto* theirs = static_cast<int*>(remote.data());
    REQUIRE(theirs != nullptr);
    CHECK(remoteInner.data() == theirs + 1000);
    for (std::size_t i = 0; i < count; ++i) {
      if (theirs[i] != peer * 100000 + static_cast<int>(i)) CHECK(theirs[i] == peer * 100000 + static_cast<int>(i));
    }
    theirs[count + static_cast<std::size_t>(rank)] = 1000 + rank;
    kept.push_back(remote);
  }
  bootstrap->barrier();
  for (int peer = 0; peer < nRanks; ++peer) {
    if (peer != rank) CHECK(own[count + static_cast<std::size_t>(peer)] == 1000 + peer);
  }
  bootstrap->barrier();
}

}  // namespace

TEST_CASE("ranks as threads share host memory") {
  runAsThreads(4, shareBuffers);
}
TEST_CASE("ranks as processes share host memory") {
  runAsProcesses(4, "one process shares host memory");
}
TEST_CASE("one process shares host memory" * doctest::skip()) {
  auto bootstrap = bootstrapOfProcess();
  const std::size_t descriptors = openDescriptors();
  const std::size_t threads = liveThreads();
  shareBuffers(bootstrap);
  CHECK(openDescriptors() == descriptors);
  CHECK(threadCountReturnsTo(threads));
}

TEST_CASE("a mapping outlives its owner, and deregistered memory is an error") {
  runAsProcesses(2, "one process deregisters host memory");
}
TEST_CASE("one process deregisters host memory" * doctest::skip()) {
  auto bootstrap = bootstrapOfProcess();
  if (bootstrap->getRank() == 0) {
    auto context = Context::create();
    auto buffer = std::make_unique<HostBuffer>(4096);
    static_cast<int*>(buffer->data())[0] = 42;
    auto memory = context->registerMemory(buffer->data(), 4096, Transport::SharedMemory);
    HostBuffer other(64);
    auto kept = context->registerMemory(other.data(), 64, Transport::SharedMemory);
    bootstrap->send(memory.serialize(), 1, 0);
    bootstrap->barrier();
    bootstrap->send(memory.serialize(), 1, 0);
    bootstrap->send(kept.serialize(), 1, 0);
    memory = RegisteredMemory();
    buffer.reset();
    bootstrap->barrier();
    bootstrap->barrier();
    kept = RegisteredMemory();  // the last registration: the server ends too
    bootstrap->barrier();
    bootstrap->barrier();
    return;
  }
  std::vector<char> bytes;
  bootstrap->recv(bytes, 0, 0);
  auto mapped = RegisteredMemory::deserialize(bytes);
  bootstrap->barrier();
  bootstrap->recv(bytes, 0, 0);
  std::vector<char> stillOffered;
  bootstrap->recv(stillOffered, 0, 0);
  bootstrap->barrier();
  CHECK(static_cast<int*>(mapped.data())[0] == 42);
  mapped = RegisteredMemory();
  CHECK_THROWS_WITH_AS(RegisteredMemory::deserialize(bytes), doctest::Contains("no longer offers"), Error);
  CHECK(RegisteredMemory::deserialize(stillOffered).size() == 64);
  bootstrap->barrier();
  bootstrap->barrier();
  CHECK_THROWS_WITH_AS(RegisteredMemory::deserialize(stillOffered), doctest::Contains("gone"), Error);
  bootstrap->barrier();
}
