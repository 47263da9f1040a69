// Users of a connection when it delays or loses operations, or stops responding: they report an error, and never hang.
#include "faulty_connection.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "mscclpp/host/channel/device_handle.hpp"
#include "mscclpp/host/channel/host_semaphore.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"
#include "mscclpp/host/transport/context.hpp"
#include "tests/host/socketpair_bootstrap.hpp"
#include "tests/host/transport/tcp/tcp_pair.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

/// A faulty connection with memories at its ends.
struct Fixture {
  static constexpr std::size_t bytes = 64 << 10;

  explicit Fixture(const Faults& faults, Transport transport = Transport::SharedMemory)
      : pair(context, transport, faults),
        source(context->registerMemory(from.data(), bytes, transport)),
        target(context->registerMemory(to.data(), bytes, transport)) {}

  std::uint64_t* words() { return static_cast<std::uint64_t*>(to.data()); }
  void write(std::uint64_t offset, std::uint64_t size) { pair.here.write(target, offset, source, offset, size); }

  std::shared_ptr<Context> context = Context::create();
  FaultyPair pair;
  HostBuffer from{bytes};
  HostBuffer to{bytes};
  RegisteredMemory source;
  RegisteredMemory target;
};

struct Signals {
  explicit Signals(const FaultyPair& pair) : Signals(SemaphoreStub(pair.here), SemaphoreStub(pair.there)) {}
  Signals(const SemaphoreStub& here, const SemaphoreStub& there)
      : sender(Semaphore(here, remoteCopy(there))), receiver(Semaphore(there, remoteCopy(here))) {}
  static SemaphoreStub remoteCopy(const SemaphoreStub& stub) { return SemaphoreStub::deserialize(stub.serialize()); }

  Host2HostSemaphore sender;
  Host2HostSemaphore receiver;
};

bool isQuick(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::steady_clock::now() - start < 20s;
}

std::shared_ptr<Bootstrap> singleRankBootstrap() {
  return std::make_shared<SocketpairBootstrap>(0, std::vector<int>{-1});
}

}  // namespace

namespace {

/// Sends rounds of words, each followed by a signal. Executes operations one by one until the signal has arrived; then
/// counts the words that have not.
std::size_t wordsMissing(Faults faults, Transport transport) {
  faults.paused = true;
  Fixture fixture(faults, transport);
  Signals signals(fixture.pair);
  auto* source = static_cast<std::uint64_t*>(fixture.from.data());
  constexpr std::size_t words = 64;
  std::size_t missing = 0;
  for (std::uint64_t round = 1; round <= 30; ++round) {
    for (std::size_t i = 0; i < words; ++i) source[i] = round * 1000 + i;
    for (std::size_t i = 0; i < words; i += 8) fixture.write(i * 8, 64);
    signals.sender.signal();
    while (!signals.receiver.poll()) fixture.pair.faulty->executeNext();
    for (std::size_t i = 0; i < words; ++i) missing += fixture.words()[i] != round * 1000 + i ? 1 : 0;
    while (fixture.pair.here.completed() < fixture.pair.here.issued()) fixture.pair.faulty->executeNext();
  }
  return missing;
}

}  // namespace

TEST_CASE("reordered writes have arrived when the signal has, and the test detects when they have not") {
  for (const Transport transport : {Transport::SharedMemory, Transport::Ethernet}) {
    CHECK(wordsMissing({}, transport) == 0);
    CHECK(wordsMissing({.reorder = true, .seed = 7}, transport) == 0);
    CHECK(wordsMissing({.reorderUpdates = true, .seed = 7}, transport) > 0);
  }
}

TEST_CASE("delayed writes have arrived when the signal has") {
  Fixture fixture({.delay = 20us, .reorder = true, .seed = 7});
  Signals signals(fixture.pair);
  auto* source = static_cast<std::uint64_t*>(fixture.from.data());
  std::size_t wrong = 0;
  for (std::uint64_t round = 1; round <= 50; ++round) {
    for (std::size_t i = 0; i < 64; ++i) source[i] = round * 1000 + i;
    for (std::size_t i = 0; i < 64; i += 8) fixture.write(i * 8, 64);
    signals.sender.signal();
    signals.receiver.wait(-1);
    for (std::size_t i = 0; i < 64; ++i) wrong += fixture.words()[i] != round * 1000 + i ? 1 : 0;
    fixture.pair.here.flush();  // the source may be reused
  }
  CHECK(wrong == 0);
  CHECK(fixture.pair.here.completed() == 50 * 9);
}

TEST_CASE("the faulty connection injects the requested faults: writes are reordered, and sources are read late") {
  Fixture fixture({.reorder = true, .paused = true, .seed = 3});
  for (std::size_t i = 0; i < 40; ++i) fixture.write(i * 8, 8);
  std::uint64_t counter = 0;
  fixture.pair.here.updateAndSync(fixture.target, 512, &counter, 1);
  for (std::size_t i = 0; i < 40; ++i) fixture.write(i * 8, 8);
  CHECK(fixture.pair.here.completed() == 0);
  fixture.pair.faulty->resume();
  fixture.pair.here.flush();
  auto history = fixture.pair.faulty->history();
  REQUIRE(history.size() == 81);
  CHECK(history[40] == 41);
  CHECK_FALSE(std::is_sorted(history.begin(), history.begin() + 40));
  CHECK_FALSE(std::is_sorted(history.begin() + 41, history.end()));
  std::sort(history.begin(), history.begin() + 40);
  std::sort(history.begin() + 41, history.end());
  CHECK(std::is_sorted(history.begin(), history.end()));

  // Overwriting the source before a flush is a bug of the caller, which is visible here.
  Fixture late({.paused = true});
  auto& word = *static_cast<std::uint64_t*>(late.from.data());
  word = 1;
  late.write(0, 8);
  word = 2;
  late.pair.faulty->resume();
  late.pair.here.flush();
  CHECK(late.words()[0] == 2);
}

TEST_CASE("a lost operation fails the flush, and everything after it") {
  Fixture fixture({.dropAt = 5});
  Signals signals(fixture.pair);
  for (int i = 0; i < 4; ++i) fixture.write(0, 8);
  fixture.pair.here.flush();
  CHECK(fixture.pair.here.completed() == 4);
  fixture.write(8, 8);
  const Failure failure = failureOf([&] { fixture.pair.here.flush(); });
  CHECK(failure.code == ErrorCode::RemoteError);
  CHECK(failure.text.find("operation 5") != std::string::npos);
  CHECK(failureOf([&] { fixture.pair.here.completed(); }).text == failure.text);
  CHECK(failureOf([&] { signals.sender.signal(); }).text == failure.text);
  CHECK(failureOf([&] { fixture.write(0, 8); }).text == failure.text);
  CHECK(fixture.pair.here.issued() == 5);
  // The peer is not notified over this connection, but its wait times out.
  CHECK_FALSE(signals.receiver.poll());
  CHECK(failureOf([&] { signals.receiver.wait(2000); }).code == ErrorCode::Timeout);
}

TEST_CASE("any operation in turn may fail") {
  for (std::uint64_t at = 1; at <= 6; ++at) {
    CAPTURE(at);
    for (const bool refused : {false, true}) {
      Fixture fixture({.rejectAt = refused ? at : 0, .dropAt = refused ? 0 : at});
      Signals signals(fixture.pair);
      std::uint64_t reached = 0;
      const Failure failure = failureOf([&] {
        while (reached < 10) {
          fixture.write(reached * 8, 8);
          signals.sender.signal();
          fixture.pair.here.flush();
          ++reached;
        }
      });
      CHECK(failure.code == ErrorCode::RemoteError);
      CHECK(failure.text.find("operation " + std::to_string(at)) != std::string::npos);
      CHECK(reached == (at - 1) / 2);
      // Signals sent before the failure arrive, later ones do not.
      std::uint64_t seen = 0;
      while (signals.receiver.poll()) ++seen;
      CHECK(seen == reached);
    }
  }
}

TEST_CASE("a flush over a connection that stops responding takes its timeout, and no longer") {
  Fixture fixture({.stallFrom = 3});
  fixture.write(0, 8);
  fixture.write(8, 8);
  fixture.pair.here.flush();
  fixture.write(16, 8);
  CHECK(isQuick([&] {
    const Failure failure = failureOf([&] { fixture.pair.here.flush(30'000); });
    CHECK(failure.code == ErrorCode::Timeout);
    CHECK(failure.text.find("a faulty path") != std::string::npos);
    CHECK(failure.text.find("30000 us") != std::string::npos);
  }));
  CHECK(fixture.pair.here.completed() == 2);
  CHECK(failureOf([&] { fixture.pair.here.flush(0); }).code == ErrorCode::Timeout);
}

namespace {

/// Makes progress between polls: everything is complete at the fourth.
class DelayedCompletionConnection : public detail::ConnectionBase {
 public:
  using ConnectionBase::ConnectionBase;
  std::uint64_t completed() override { return ++looks_ < 4 ? 0 : issued(); }

 protected:
  void startWrite(const RegisteredMemory& /*dst*/, std::uint64_t /*dstOffset*/, const RegisteredMemory& /*src*/,
                  std::uint64_t /*srcOffset*/, std::uint64_t /*size*/) override {}
  void startUpdate(const RegisteredMemory& /*dst*/, std::uint64_t /*dstOffset*/, std::uint64_t /*oldValue*/,
                   std::uint64_t /*newValue*/) override {}

 private:
  int looks_ = 0;
};

}  // namespace

TEST_CASE("a flush that is found complete before an earlier one stays complete") {
  const auto context = Context::create();
  const Endpoint end = context->createEndpoint({Transport::SharedMemory, DeviceType::CPU});
  const Connection connection(std::make_shared<DelayedCompletionConnection>(context, end, end));
  ProxyService service(ProxyServiceOptions{.thread = {.device = DeviceType::CPU}});
  const auto id =
      service.addSemaphore(Semaphore(SemaphoreStub(connection), Signals::remoteCopy(SemaphoreStub(connection))));
  auto handle = deviceHandle(service.basePortChannel(id));
  // The proxy polls each of the flushes once, then the first again, and then the second.
  std::uint64_t last = 0;
  for (int i = 0; i < 2; ++i) {
    CHECK(handle.signal());
    last = handle.fifo_.push(ProxyTrigger(TriggerSync, 0, 0, 0, 0, 0, id));
  }
  service.startProxy();
  service.stopProxy();
  CHECK(*handle.flushDonePos_ == last + 1);
}

namespace {

// A rank that puts to itself through a proxy over a faulty connection.
struct PortFixture {
  explicit PortFixture(const Faults& faults)
      : communicator(singleRankBootstrap()),
        pair(communicator.context(), Transport::SharedMemory, faults),
        service(ProxyServiceOptions{.thread = {.device = DeviceType::CPU, .stopTimeout = 100ms}}) {
    const SemaphoreStub here(pair.here);
    const SemaphoreStub there(pair.there);
    const Semaphore semaphore(here, Signals::remoteCopy(there), communicator.monitor(DeviceType::CPU), 0, 0);
    const auto id = service.addSemaphore(semaphore);
    const auto memory = communicator.registerMemory(buffer.data(), 4096, Transport::SharedMemory);
    const MemoryId number = service.addMemory(memory);
    channel = service.portChannel(id, number, number);
    service.startProxy(true);
  }

  Communicator communicator;
  FaultyPair pair;
  HostBuffer buffer{4096};
  ProxyService service;
  PortChannel channel;
};

}  // namespace

TEST_CASE("a proxy works over a connection with delays and reordering") {
  PortFixture fixture({.delay = 50us, .reorder = true});
  auto handle = deviceHandle(fixture.channel);
  auto* bytes = static_cast<char*>(fixture.buffer.data());
  std::size_t wrong = 0;
  for (int round = 1; round <= 30; ++round) {
    std::memset(bytes, round, 1000);
    wrong += handle.put(2000, 0, 500) && handle.put(2500, 500, 500) && handle.signal() && handle.flush() ? 0 : 1;
    wrong += std::memcmp(bytes, bytes + 2000, 1000) == 0 ? 0 : 1;
  }
  CHECK(wrong == 0);
  fixture.service.stopProxy();
}

TEST_CASE("a proxy whose connection fails ends the waits of its channels, and reports the failure") {
  for (const bool refused : {false, true}) {
    PortFixture fixture({.rejectAt = refused ? std::uint64_t{3} : 0, .dropAt = refused ? std::uint64_t{0} : 3});
    auto handle = deviceHandle(fixture.channel);
    CHECK(handle.putWithSignalAndFlush(0, 0, 8));
    CHECK(isQuick([&] { CHECK_FALSE(handle.putWithSignalAndFlush(8, 8, 8)); }));
    const Failure failure = failureOf([&] { fixture.service.stopProxy(); });
    CHECK(failure.code == ErrorCode::RemoteError);
    CHECK(failure.text.find("operation 3") != std::string::npos);
  }
}

TEST_CASE("a proxy stops in time over a connection that stopped responding") {
  PortFixture fixture({.stallFrom = 1});
  auto handle = deviceHandle(fixture.channel);
  CHECK(handle.put(0, 0, 8));
  CHECK(isQuick([&] { CHECK(failureOf([&] { fixture.service.stopProxy(); }).code == ErrorCode::Timeout); }));
}
