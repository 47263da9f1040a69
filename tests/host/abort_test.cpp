// Communicator::abort() from another thread ends whatever waits: calls of the bootstrap, futures, connections to a peer
// that is stopped, and proxies that serve them.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "mscclpp/host/proxy_service.hpp"
#include "ranks.hpp"

using namespace mscclpp;
using namespace std::chrono_literals;
using test::ChildProcess;
using test::onThreads;

namespace {

constexpr double soon = 5;  // seconds, on a busy machine

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

std::shared_ptr<TcpBootstrap> meet(int rank, int ranks, const UniqueId& id) {
  auto bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
  bootstrap->setHeartbeatTimeout(0ms);  // a rank that is stopped does not count as lost here
  bootstrap->initialize(id);
  return bootstrap;
}

/// Runs `call` until it throws, which it would not do by itself, and has `abort` called meanwhile.
void endsByAbort(const std::string& name, const std::function<void()>& call, const std::function<void()>& abort) {
  std::atomic<bool> hasEnded = false;
  std::string text = name + " returned";
  ErrorCode code = ErrorCode::InternalError;
  std::thread caller([&] {
    try {
      call();
    } catch (const Error& error) {
      code = error.getErrorCode();
      text = name + ": " + error.what();
    }
    hasEnded = true;
  });
  std::this_thread::sleep_for(100ms);
  const bool hasEndedBefore = hasEnded;
  const auto start = std::chrono::steady_clock::now();
  // The caller may be a little late: whoever is not blocked yet is not ended by one abort of a bootstrap.
  while (!hasEnded && test::secondsSince(start) < soon) {
    abort();
    std::this_thread::sleep_for(1ms);
  }
  const double seconds = test::secondsSince(start);
  caller.join();
  expect(!hasEndedBefore, text + ", before it was aborted");
  expect(code == ErrorCode::Aborted, text);
  expect(seconds < soon, name + " took " + std::to_string(seconds) + " s");
}

using Operation = std::function<void(Communicator&, TcpBootstrap&)>;

/// One of two ranks waits for the other in vain, and is aborted; the other learns it.
void abortsAlone(const std::string& name, const Operation& operation) {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const auto outcomes = onThreads(2, [&](int rank) {
    const auto bootstrap = meet(rank, 2, id);
    Communicator communicator(bootstrap);
    if (rank == 0) {
      endsByAbort(
          name, [&] { operation(communicator, *bootstrap); }, [&] { communicator.abort(); });
      // And at once from now on.
      const auto start = std::chrono::steady_clock::now();
      CHECK_THROWS_AS(communicator.recvMemory(1, 9).get(), Error);
      CHECK(test::secondsSince(start) < soon);
      return;
    }
    int never = 0;
    try {
      bootstrap->recv(&never, sizeof(never), 0, 77);
      throw std::runtime_error("a message came that nobody sent");
    } catch (const Error& error) {
      expect(error.getErrorCode() == ErrorCode::RemoteError, error.what());
      expect(std::string(error.what()).find("rank 0 failed: it was aborted") != std::string::npos, error.what());
    }
  });
  for (const std::string& outcome : outcomes) CHECK(outcome == "");
}

}  // namespace

TEST_CASE("abort ends futures and calls of the bootstrap, and the peers learn of it") {
  abortsAlone("recvMemory", [](Communicator& c, TcpBootstrap&) { c.recvMemory(1).get(); });
  abortsAlone("connect", [](Communicator& c, TcpBootstrap&) { c.connect(Transport::SharedMemory, 1).get(); });
  abortsAlone("recv", [](Communicator&, TcpBootstrap& b) {
    char byte;
    b.recv(&byte, 1, 1, 0);
  });
  abortsAlone("barrier", [](Communicator&, TcpBootstrap& b) { b.barrier(); });
  abortsAlone("allGather", [](Communicator&, TcpBootstrap& b) {
    char bytes[2] = {};
    b.allGather(bytes, 1);
  });
  abortsAlone("send", [](Communicator&, TcpBootstrap& b) {  // the outbox is full at some time
    std::vector<char> much(40 << 20);
    for (int i = 0; i < 100; ++i) b.send(much.data(), static_cast<int>(much.size()), 1, i);
    b.barrier();  // the peer does take messages: then this waits
  });
}

TEST_CASE("abort ends a receive from oneself") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  Communicator communicator(meet(0, 1, id));
  endsByAbort(
      "recvMemory", [&] { communicator.recvMemory(0).get(); }, [&] { communicator.abort(); });
}

TEST_CASE("abort with nothing blocked leaves the bootstrap to the next communicator") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const auto outcomes = onThreads(2, [&](int rank) {
    const auto bootstrap = meet(rank, 2, id);
    {
      Communicator first(bootstrap);
      first.abort();
      CHECK_THROWS_AS(first.connect(Transport::SharedMemory, 1 - rank), Error);
    }
    bootstrap->barrier();
    Communicator second(bootstrap);
    const Connection connection = second.connect(Transport::SharedMemory, 1 - rank).get();
    bootstrap->barrier();
  });
  for (const std::string& outcome : outcomes) CHECK(outcome == "");
}

namespace {

/// A connection over TCP to a peer that is stopped, and memory on both sides.
class StoppedPeer {
 public:
  StoppedPeer()
      : id_(TcpBootstrap::createUniqueId()),
        child_([this] {
          Side side(1, id_);
          while (true) ::pause();
        }),
        side_(std::make_unique<Side>(0, id_)) {
    child_.stop();
  }
  ~StoppedPeer() {
    child_.kill(SIGKILL);
    child_.kill(SIGCONT);
  }

  struct Side {
    Side(int rank, const UniqueId& id)
        : communicator(meet(rank, 2, id)),
          connection(communicator.connect(EndpointConfig(Transport::Ethernet, DeviceType::CPU), 1 - rank).get()),
          data(8 << 20),
          local(communicator.registerMemory(data.data(), data.size(), Transport::Ethernet)) {
      communicator.sendMemory(local, 1 - rank);
      remote = communicator.recvMemory(1 - rank).get();
      semaphore = communicator.buildSemaphore(connection, 1 - rank).get();
      communicator.bootstrap()->barrier();
    }
    Communicator communicator;
    Connection connection;
    std::vector<char> data;
    RegisteredMemory local;
    RegisteredMemory remote;
    Semaphore semaphore;
  };
  Side& side() { return *side_; }

 private:
  UniqueId id_;
  ChildProcess child_;
  std::unique_ptr<Side> side_;
};

}  // namespace

TEST_CASE("abort ends a flush, and a write that the peer does not take") {
  StoppedPeer peer;
  auto& side = peer.side();
  std::uint64_t word = 0;
  const auto abort = [&] { side.communicator.abort(); };
  SUBCASE("flush") {
    side.connection.updateAndSync(side.remote, 0, &word, 1);
    endsByAbort(
        "flush", [&] { side.connection.flush(); }, abort);
  }
  SUBCASE("write") {
    endsByAbort(
        "write",
        [&] {
          while (true) side.connection.write(side.remote, 0, side.local, 0, side.data.size());
        },
        abort);
    CHECK_THROWS_AS(side.connection.write(side.remote, 0, side.local, 0, 1), Error);
  }
}

TEST_CASE("abort ends a proxy that serves a stopped peer, and the waits on its channel") {
  StoppedPeer peer;
  auto& side = peer.side();
  ProxyService service({.thread = {.device = DeviceType::CPU}});
  const auto semaphore = service.addSemaphore(side.semaphore);
  const auto dst = service.addMemory(side.remote);
  const auto src = service.addMemory(side.local);
  service.startProxy();
  const PortChannel channel = service.portChannel(semaphore, dst, src);
  auto handle = channel.deviceHandle();
  std::atomic<bool> hasEnded = false;
  bool succeeded = true;
  std::thread kernel([&] {
    for (int i = 0; i < 4; ++i) handle.put(0, 0, side.data.size());
    succeeded = handle.flush();
    hasEnded = true;
  });
  std::this_thread::sleep_for(200ms);
  CHECK_FALSE(hasEnded);
  const auto start = std::chrono::steady_clock::now();
  side.communicator.abort();
  kernel.join();
  CHECK_FALSE(succeeded);
  try {
    service.stopProxy();
    FAIL("the proxy has met no failure");
  } catch (const Error& error) {
    CAPTURE(error.what());
    CHECK(error.getErrorCode() == ErrorCode::Aborted);
  }
  CHECK(test::secondsSince(start) < soon);
  CHECK_THROWS_AS(side.communicator.monitor(DeviceType::CPU)->check(), Error);
}
