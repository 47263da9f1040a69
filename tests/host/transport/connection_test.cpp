#include "mscclpp/host/transport/connection.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "host/transport/transport_table.hpp"
#include "host/transport/unavailable_transport.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "mscclpp/host/transport/context.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

TEST_CASE("incompatible endpoints are rejected") {
  auto context = Context::create();
  const auto shared = context->createEndpoint(Transport::SharedMemory);
  auto other = shared.serialize();
  other[16] = static_cast<char>(Transport::CudaIpc);
  CHECK_THROWS_WITH_AS(context->connect(shared, Endpoint::deserialize(other)), doctest::Contains("same transport"),
                       Error);
  CHECK_THROWS_AS(context->connect(Endpoint(), Endpoint()), Error);
  CHECK_THROWS_AS(context->createEndpoint({Transport::SharedMemory, DeviceType::GPU}), Error);
  CHECK_THROWS_AS(context->createEndpoint({Transport::CudaIpc, DeviceType::CPU}), Error);
  CHECK_THROWS_AS(context->createEndpoint(Transport::Unknown), Error);

  auto elsewhere = shared.serialize();
  elsewhere[32] = static_cast<char>(elsewhere[32] + 1);  // the host hash
  CHECK_THROWS_WITH_AS(context->connect(shared, Endpoint::deserialize(elsewhere)), doctest::Contains("another host"),
                       Error);
}

TEST_CASE("each transport is in the table once, and transports that map memory come first") {
  const detail::TransportTable table;
  CHECK(table.backends().size() == AllTransports.count());
  CHECK(table.mapping() == (Transport::CudaIpc | Transport::SharedMemory));
  bool mapped = true;
  for (const auto& backend : table.backends()) {
    CHECK(table.find(backend->transport()) == backend.get());
    CHECK_FALSE((backend->properties().mapsMemory && !mapped));
    mapped = backend->properties().mapsMemory;
    CHECK_FALSE(backend->serves(DeviceType::Unknown));
    CHECK(backend->serves(DeviceType::CPU) == (backend->transport() != Transport::CudaIpc));
    CHECK(backend->serves(DeviceType::GPU) == (backend->transport() != Transport::SharedMemory));
  }
  CHECK(table.find(Transport::Unknown) == nullptr);
  CHECK(table.find(Transport::NumTransports) == nullptr);
}

TEST_CASE("the error for a transport that is not built in says how to enable it") {
  detail::UnavailableTransport missing(Transport::IB2, {.servesCpu = true, .servesGpu = true, .mapsMemory = false},
                                       "rebuild it");
  char data = 0;
  CHECK_THROWS_WITH_AS(missing.exportMemory(&data, 1), doctest::Contains("IB2: rebuild it"), Error);
  CHECK_THROWS_WITH_AS(missing.createEndpoint({}), doctest::Contains("IB2: rebuild it"), Error);
  CHECK_THROWS_WITH_AS(missing.connect(nullptr, {}, {}, detail::peerReplyDeadline()),
                       doctest::Contains("IB2: rebuild it"), Error);
  CHECK_THROWS_WITH_AS(missing.importMemory({}, 1, detail::peerReplyDeadline()), doctest::Contains("IB2: rebuild it"),
                       Error);
}

TEST_CASE("a connection to oneself, and its rejected arguments") {
  auto context = Context::create();
  const auto endpoint = context->createEndpoint(Transport::SharedMemory);
  auto connection = context->connect(endpoint, Endpoint::deserialize(endpoint.serialize()));
  CHECK(connection.transport() == Transport::SharedMemory);
  CHECK(connection.remoteTransport() == Transport::SharedMemory);
  CHECK(connection.localDevice().type == DeviceType::CPU);
  CHECK(connection.context() == context);
  CHECK(connection.getMaxWriteQueueSize() == -1);

  HostBuffer a(4096);
  HostBuffer b(4096);
  std::vector<char> plain(4096);
  const auto source = context->registerMemory(a.data(), 4096, Transport::SharedMemory);
  const auto target = context->registerMemory(b.data(), 4096, Transport::SharedMemory);
  const auto local = context->registerMemory(plain.data(), 4096, NoTransports);
  std::memset(a.data(), 5, 4096);
  connection.write(target, 96, source, 1000, 3000);
  connection.flush();
  CHECK(static_cast<char*>(b.data())[95] == 0);
  CHECK(std::memcmp(static_cast<char*>(b.data()) + 96, a.data(), 3000) == 0);
  CHECK(static_cast<char*>(b.data())[3096] == 0);
  connection.write(target, 4096, source, 4096, 0);

  CHECK_THROWS_AS(connection.write(target, 0, source, 1, 4096), Error);
  CHECK_THROWS_AS(connection.write(target, 4097, source, 0, 0), Error);
  CHECK_THROWS_AS(connection.write(target, UINT64_MAX, source, 0, 2), Error);
  CHECK_THROWS_AS(connection.write(target, 1, source, 0, UINT64_MAX), Error);
  CHECK_THROWS_AS(connection.write(target, 0, local, 0, 1), Error);
  CHECK_THROWS_AS(connection.write(RegisteredMemory(), 0, source, 0, 1), Error);

  std::uint64_t word = 3;
  connection.updateAndSync(target, 8, &word, 9);
  CHECK(word == 9);
  CHECK(static_cast<std::uint64_t*>(b.data())[1] == 9);
  CHECK(static_cast<std::uint64_t*>(b.data())[0] == 0);
  CHECK_THROWS_AS(connection.updateAndSync(target, 4, &word, 1), Error);
  CHECK_THROWS_AS(connection.updateAndSync(target, 4096, &word, 1), Error);
  CHECK_THROWS_AS(connection.updateAndSync(target, 0, nullptr, 1), Error);
  CHECK(word == 9);

  Connection empty;
  CHECK_THROWS_AS(empty.flush(), Error);
  CHECK_THROWS_AS(empty.transport(), Error);
}

namespace {

// Ping-pong: data, then a counter. A reader that acquires the counter must see all of the data.
void pingPong(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  const int peer = 1 - rank;
  Communicator communicator(bootstrap);
  constexpr std::size_t words = 1000;
  constexpr std::uint64_t rounds = 200;
  HostBuffer inbox((words + 1) * 8);
  HostBuffer outbox(words * 8);
  auto* received = static_cast<std::uint64_t*>(inbox.data());
  auto* sent = static_cast<std::uint64_t*>(outbox.data());
  const auto local = communicator.registerMemory(inbox.data(), inbox.bytes(), Transport::SharedMemory);
  const auto source = communicator.registerMemory(outbox.data(), outbox.bytes(), Transport::SharedMemory);
  auto connecting = communicator.connect(Transport::SharedMemory, peer, 1);
  communicator.sendMemory(local, peer, 1);
  auto receiving = communicator.recvMemory(peer, 1);
  auto connection = connecting.get();
  const auto target = receiving.get();
  CHECK(communicator.remoteRankOf(connection) == peer);
  CHECK(communicator.tagOf(connection) == 1);

  std::uint64_t counter = 0;
  std::size_t wrong = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    if ((round + static_cast<std::uint64_t>(rank)) % 2 == 0) {
      for (std::size_t i = 0; i < words; ++i) sent[i] = round * 1000000 + i;
      connection.write(target, 0, source, 0, words * 8);
      connection.updateAndSync(target, words * 8, &counter, round);
      connection.flush();
      continue;
    }
    while (std::atomic_ref(received[words]).load(std::memory_order_acquire) != round) {
      if (std::chrono::steady_clock::now() > deadline) throw Error("no counter", ErrorCode::Timeout);
      std::this_thread::yield();
    }
    for (std::size_t i = 0; i < words; ++i) wrong += received[i] != round * 1000000 + i ? 1 : 0;
  }
  CHECK(wrong == 0);
  bootstrap->barrier();
}

}  // namespace

TEST_CASE("data arrives before the counter, ranks as threads") {
  runAsThreads(2, pingPong);
}
TEST_CASE("data arrives before the counter, ranks as processes") {
  runAsProcesses(2, "one process plays ping-pong");
}
TEST_CASE("one process plays ping-pong" * doctest::skip()) {
  pingPong(bootstrapOfProcess());
}
