// What those who use a connection do when it is late, loses something, or falls silent: they say so, and never hang.
#include "faulty_connection.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/context.hpp"
#include "mscclpp/host/device_handle.hpp"
#include "mscclpp/host/host_buffer.hpp"
#include "mscclpp/host/host_semaphore.hpp"
#include "mscclpp/host/proxy_service.hpp"
#include "socketpair_bootstrap.hpp"
#include "tcp_pair.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

/// A faulty connection with memories at its ends.
struct Rig {
  static constexpr std::size_t bytes = 64 << 10;

  explicit Rig(const Faults& faults, Transport transport = Transport::SharedMemory)
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
      : sender(Semaphore(here, passedOn(there))), receiver(Semaphore(there, passedOn(here))) {}
  static SemaphoreStub passedOn(const SemaphoreStub& stub) { return SemaphoreStub::deserialize(stub.serialize()); }

  Host2HostSemaphore sender;
  Host2HostSemaphore receiver;
};

bool isQuick(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::steady_clock::now() - start < 20s;
}

std::shared_ptr<Bootstrap> alone() {
  return std::make_shared<SocketpairBootstrap>(0, std::vector<int>{-1});
}

}  // namespace

namespace {

/// Sends rounds of words with a signal behind each. Operations take effect one by one until the signal is there; then
/// counts the words that are not.
std::size_t wordsMissing(Faults faults, Transport transport) {
  faults.held = true;
  Rig rig(faults, transport);
  Signals signals(rig.pair);
  auto* source = static_cast<std::uint64_t*>(rig.from.data());
  constexpr std::size_t words = 64;
  std::size_t missing = 0;
  for (std::uint64_t round = 1; round <= 30; ++round) {
    for (std::size_t i = 0; i < words; ++i) source[i] = round * 1000 + i;
    for (std::size_t i = 0; i < words; i += 8) rig.write(i * 8, 64);
    signals.sender.signal();
    while (!signals.receiver.poll()) rig.pair.faulty->step();
    for (std::size_t i = 0; i < words; ++i) missing += rig.words()[i] != round * 1000 + i ? 1 : 0;
    while (rig.pair.here.completed() < rig.pair.here.issued()) rig.pair.faulty->step();
  }
  return missing;
}

}  // namespace

TEST_CASE("reordered writes are all there when the signal is; and the test sees when they are not") {
  for (const Transport transport : {Transport::SharedMemory, Transport::Ethernet}) {
    CHECK(wordsMissing({}, transport) == 0);
    CHECK(wordsMissing({.reorder = true, .seed = 7}, transport) == 0);
    CHECK(wordsMissing({.breakOrder = true, .seed = 7}, transport) > 0);
  }
}

TEST_CASE("late writes are there when the signal is") {
  Rig rig({.delay = 20us, .reorder = true, .seed = 7});
  Signals signals(rig.pair);
  auto* source = static_cast<std::uint64_t*>(rig.from.data());
  std::size_t wrong = 0;
  for (std::uint64_t round = 1; round <= 50; ++round) {
    for (std::size_t i = 0; i < 64; ++i) source[i] = round * 1000 + i;
    for (std::size_t i = 0; i < 64; i += 8) rig.write(i * 8, 64);
    signals.sender.signal();
    signals.receiver.wait(-1);
    for (std::size_t i = 0; i < 64; ++i) wrong += rig.words()[i] != round * 1000 + i ? 1 : 0;
    rig.pair.here.flush();  // the source is free
  }
  CHECK(wrong == 0);
  CHECK(rig.pair.here.completed() == 50 * 9);
}

TEST_CASE("the faulty path does what it is told: writes overtake each other, and sources are read late") {
  Rig rig({.reorder = true, .held = true, .seed = 3});
  for (std::size_t i = 0; i < 40; ++i) rig.write(i * 8, 8);
  std::uint64_t counter = 0;
  rig.pair.here.updateAndSync(rig.target, 512, &counter, 1);
  for (std::size_t i = 0; i < 40; ++i) rig.write(i * 8, 8);
  CHECK(rig.pair.here.completed() == 0);
  rig.pair.faulty->letThrough();
  rig.pair.here.flush();
  auto history = rig.pair.faulty->history();
  REQUIRE(history.size() == 81);
  CHECK(history[40] == 41);
  CHECK_FALSE(std::is_sorted(history.begin(), history.begin() + 40));
  CHECK_FALSE(std::is_sorted(history.begin() + 41, history.end()));
  std::sort(history.begin(), history.begin() + 40);
  std::sort(history.begin() + 41, history.end());
  CHECK(std::is_sorted(history.begin(), history.end()));

  // Who writes the source again before a flush has made a mistake that shows here.
  Rig late({.held = true});
  auto& word = *static_cast<std::uint64_t*>(late.from.data());
  word = 1;
  late.write(0, 8);
  word = 2;
  late.pair.faulty->letThrough();
  late.pair.here.flush();
  CHECK(late.words()[0] == 2);
}

TEST_CASE("a lost operation fails the flush, and everything after it") {
  Rig rig({.drop = 5});
  Signals signals(rig.pair);
  for (int i = 0; i < 4; ++i) rig.write(0, 8);
  rig.pair.here.flush();
  CHECK(rig.pair.here.completed() == 4);
  rig.write(8, 8);
  const Failure failure = failureOf([&] { rig.pair.here.flush(); });
  CHECK(failure.code == ErrorCode::RemoteError);
  CHECK(failure.text.find("operation 5") != std::string::npos);
  CHECK(failureOf([&] { rig.pair.here.completed(); }).text == failure.text);
  CHECK(failureOf([&] { signals.sender.signal(); }).text == failure.text);
  CHECK(failureOf([&] { rig.write(0, 8); }).text == failure.text);
  CHECK(rig.pair.here.issued() == 5);
  // The peer learns nothing from this connection, but its wait ends.
  CHECK_FALSE(signals.receiver.poll());
  CHECK(failureOf([&] { signals.receiver.wait(2000); }).code == ErrorCode::Timeout);
}

TEST_CASE("each operation in turn may be the one that fails") {
  for (std::uint64_t at = 1; at <= 6; ++at) {
    CAPTURE(at);
    for (const bool refused : {false, true}) {
      Rig rig({.refuse = refused ? at : 0, .drop = refused ? 0 : at});
      Signals signals(rig.pair);
      std::uint64_t reached = 0;
      const Failure failure = failureOf([&] {
        while (reached < 10) {
          rig.write(reached * 8, 8);
          signals.sender.signal();
          rig.pair.here.flush();
          ++reached;
        }
      });
      CHECK(failure.code == ErrorCode::RemoteError);
      CHECK(failure.text.find("operation " + std::to_string(at)) != std::string::npos);
      CHECK(reached == (at - 1) / 2);
      // Signals that were sent before count, later ones do not.
      std::uint64_t seen = 0;
      while (signals.receiver.poll()) ++seen;
      CHECK(seen == reached);
    }
  }
}

TEST_CASE("a path that falls silent costs a flush its timeout, and no more") {
  Rig rig({.silence = 3});
  rig.write(0, 8);
  rig.write(8, 8);
  rig.pair.here.flush();
  rig.write(16, 8);
  CHECK(isQuick([&] {
    const Failure failure = failureOf([&] { rig.pair.here.flush(30'000); });
    CHECK(failure.code == ErrorCode::Timeout);
    CHECK(failure.text.find("a faulty path") != std::string::npos);
    CHECK(failure.text.find("30000 us") != std::string::npos);
  }));
  CHECK(rig.pair.here.completed() == 2);
  CHECK(failureOf([&] { rig.pair.here.flush(0); }).code == ErrorCode::Timeout);
}

namespace {

/// Moves on between two looks: all is complete at the fourth.
class SuddenConnection : public detail::ConnectionBase {
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
  const Connection connection(std::make_shared<SuddenConnection>(context, end, end));
  ProxyService service(ProxyServiceOptions{.thread = {.device = DeviceType::CPU}});
  const auto id =
      service.addSemaphore(Semaphore(SemaphoreStub(connection), Signals::passedOn(SemaphoreStub(connection))));
  auto handle = deviceHandle(service.basePortChannel(id));
  // The proxy looks once at each of the flushes, once more at the first, and then at the second.
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

// A rank that puts to itself through a proxy over a faulty path.
struct PortRig {
  explicit PortRig(const Faults& faults)
      : communicator(alone()),
        pair(communicator.context(), Transport::SharedMemory, faults),
        service(ProxyServiceOptions{.thread = {.device = DeviceType::CPU, .stopTimeout = 100ms}}) {
    const SemaphoreStub here(pair.here);
    const SemaphoreStub there(pair.there);
    const Semaphore semaphore(here, Signals::passedOn(there), communicator.monitor(DeviceType::CPU), 0, 0);
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

TEST_CASE("a proxy works over a path that is late and reorders") {
  PortRig rig({.delay = 50us, .reorder = true});
  auto handle = deviceHandle(rig.channel);
  auto* bytes = static_cast<char*>(rig.buffer.data());
  std::size_t wrong = 0;
  for (int round = 1; round <= 30; ++round) {
    std::memset(bytes, round, 1000);
    wrong += handle.put(2000, 0, 500) && handle.put(2500, 500, 500) && handle.signal() && handle.flush() ? 0 : 1;
    wrong += std::memcmp(bytes, bytes + 2000, 1000) == 0 ? 0 : 1;
  }
  CHECK(wrong == 0);
  rig.service.stopProxy();
}

TEST_CASE("a proxy that meets a failure ends the waits of its channels, and names it") {
  for (const bool refused : {false, true}) {
    PortRig rig({.refuse = refused ? std::uint64_t{3} : 0, .drop = refused ? std::uint64_t{0} : 3});
    auto handle = deviceHandle(rig.channel);
    CHECK(handle.putWithSignalAndFlush(0, 0, 8));
    CHECK(isQuick([&] { CHECK_FALSE(handle.putWithSignalAndFlush(8, 8, 8)); }));
    const Failure failure = failureOf([&] { rig.service.stopProxy(); });
    CHECK(failure.code == ErrorCode::RemoteError);
    CHECK(failure.text.find("operation 3") != std::string::npos);
  }
}

TEST_CASE("a proxy stops in time over a path that fell silent") {
  PortRig rig({.silence = 1});
  auto handle = deviceHandle(rig.channel);
  CHECK(handle.put(0, 0, 8));
  CHECK(isQuick([&] { CHECK(failureOf([&] { rig.service.stopProxy(); }).code == ErrorCode::Timeout); }));
}
