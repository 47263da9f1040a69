// Communicator::abort() from another thread ends every wait: the rendezvous, calls of the bootstrap, futures,
// connections to a stopped peer, and proxies that serve them. The failure of a rank ends the connections to it
// likewise.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/channel/nvls.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/registered_buffer.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "mscclpp/host/proxy/port_channel.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"
#include "tests/host/expect_rank_failure.hpp"
#include "tests/host/ranks.hpp"
#include "tests/host/tcp_link.hpp"

using namespace mscclpp;
using namespace std::chrono_literals;
using test::ChildProcess;
using test::expectRankFailure;
using test::onThreads;
using test::TcpLink;

namespace {

// Seconds: less than the calls' own timeout of 30, and more than the scheduling delays of a busy machine.
constexpr double soon = 15;

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// By default a stopped rank does not count as failed.
std::shared_ptr<TcpBootstrap> connectedBootstrap(int rank, int ranks, const UniqueId& id,
                                                 std::chrono::milliseconds heartbeatTimeout = 0ms) {
  auto bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
  bootstrap->setHeartbeatTimeout(heartbeatTimeout);
  bootstrap->initialize(id);
  return bootstrap;
}

/// Runs `call`, which throws only because `abort` is called meanwhile.
void expectAborted(const std::string& name, const std::function<void()>& call, const std::function<void()>& abort) {
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
  // Abort repeatedly: an abort of the bootstrap does not end a call that is not blocked yet.
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

/// One of two ranks waits for the other, and is aborted; the other is notified.
void expectAbortReported(const std::string& name, const Operation& operation) {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const auto outcomes = onThreads(2, [&](int rank) {
    const auto bootstrap = connectedBootstrap(rank, 2, id);
    Communicator communicator(bootstrap);
    if (rank == 0) {
      expectAborted(
          name, [&] { operation(communicator, *bootstrap); }, [&] { communicator.abort(); });
      // From now on calls fail at once.
      const auto start = std::chrono::steady_clock::now();
      CHECK_THROWS_AS(communicator.recvMemory(1, 9).get(), Error);
      CHECK(test::secondsSince(start) < soon);
      return;
    }
    int never = 0;
    try {
      bootstrap->recv(&never, sizeof(never), 0, 77);
      throw std::runtime_error("received a message that was not sent");
    } catch (const Error& error) {
      expect(error.getErrorCode() == ErrorCode::RemoteError, error.what());
      expect(std::string(error.what()).find("rank 0 failed: it was aborted") != std::string::npos, error.what());
    }
  });
  for (const std::string& outcome : outcomes) CHECK(outcome == "");
}

}  // namespace

TEST_CASE("abort ends futures and calls of the bootstrap, and the peers are notified") {
  expectAbortReported("recvMemory", [](Communicator& c, TcpBootstrap&) { c.recvMemory(1).get(); });
  expectAbortReported("connect", [](Communicator& c, TcpBootstrap&) { c.connect(Transport::SharedMemory, 1).get(); });
  expectAbortReported("recv", [](Communicator&, TcpBootstrap& b) {
    char byte;
    b.recv(&byte, 1, 1, 0);
  });
  expectAbortReported("barrier", [](Communicator&, TcpBootstrap& b) { b.barrier(); });
  expectAbortReported("allGather", [](Communicator&, TcpBootstrap& b) {
    char bytes[2] = {};
    b.allGather(bytes, 1);
  });
}

TEST_CASE("abort ends a receive from oneself") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  Communicator communicator(connectedBootstrap(0, 1, id));
  expectAborted(
      "recvMemory", [&] { communicator.recvMemory(0).get(); }, [&] { communicator.abort(); });
}

TEST_CASE("after an abort with nothing blocked, the next communicator can use the bootstrap") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const auto outcomes = onThreads(2, [&](int rank) {
    const auto bootstrap = connectedBootstrap(rank, 2, id);
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

TEST_CASE("abort ends the rendezvous of the ranks") {
  const auto aborted = [](const std::string& name, const UniqueId& id, int rank, int ranks) {
    const auto bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
    Communicator communicator(bootstrap);
    expectAborted(
        name, [&] { bootstrap->initialize(id); }, [&] { communicator.abort(); });
    CHECK_THROWS_WITH_AS(bootstrap->initialize(id), doctest::Contains("was called before"), Error);
    CHECK_THROWS_WITH_AS(bootstrap->barrier(), doctest::Contains("make a new TcpBootstrap"), Error);
  };
  SUBCASE("of rank 0, which waits for the others") {
    aborted("initialize", TcpBootstrap::createUniqueId(), 0, 2);
  }
  SUBCASE("of a rank that looks for rank 0") {
    aborted("initialize", TcpBootstrap::createUniqueId(), 1, 2);
  }
  // Rank 2 never joins.
  for (const int abortingRank : {0, 1}) {
    const std::string name = "initialize of rank " + std::to_string(abortingRank) + ", which another has reached";
    SUBCASE(name.c_str()) {
      const UniqueId id = TcpBootstrap::createUniqueId();
      const auto outcomes = onThreads(2, [&](int rank) {
        if (rank == abortingRank) return aborted(name, id, rank, 3);
        TcpBootstrap bootstrap(rank, 3);
        // The other rank may have left before this one joined.
        const auto begin = std::chrono::steady_clock::now();
        try {
          bootstrap.initialize(id, 2);
          throw std::runtime_error("the ranks have met");
        } catch (const Error& error) {
          expect(error.getErrorCode() == ErrorCode::RemoteError || error.getErrorCode() == ErrorCode::Timeout,
                 error.what());
        }
        expect(test::secondsSince(begin) < soon, "the other rank waited for long");
      });
      for (const std::string& outcome : outcomes) CHECK(outcome == "");
    }
  }
  // A later rendezvous succeeds.
  const UniqueId id = TcpBootstrap::createUniqueId();
  for (const std::string& outcome : onThreads(3, [&](int rank) { connectedBootstrap(rank, 3, id)->barrier(); }))
    CHECK(outcome == "");
}

namespace {

/// Two connected ranks that ran the same preparation; the peer, a separate process, is then stopped.
class StoppedPeer {
 public:
  using Prepare = std::function<void(Communicator& communicator, int peer)>;

  explicit StoppedPeer(const Prepare& prepare, std::chrono::milliseconds heartbeatTimeout = 0ms)
      : id_(TcpBootstrap::createUniqueId()),
        child_([&] {
          Communicator communicator(connectedBootstrap(1, 2, id_, heartbeatTimeout));
          prepare(communicator, 0);
          communicator.bootstrap()->barrier();
          while (true) ::pause();
        }),
        communicator(connectedBootstrap(0, 2, id_, heartbeatTimeout)) {
    prepare(communicator, 1);
    communicator.bootstrap()->barrier();
    child_.stop();
  }
  ~StoppedPeer() {
    child_.kill(SIGKILL);
    child_.kill(SIGCONT);
  }

  void expectAborted(const std::string& name, const std::function<void()>& call) {
    ::expectAborted(name, call, [this] { communicator.abort(); });
  }

 private:
  UniqueId id_;
  ChildProcess child_;

 public:
  Communicator communicator;
};

std::unique_ptr<TcpLink> makeLink(Communicator& communicator, int peer) {
  return std::make_unique<TcpLink>(communicator, peer, 8 << 20);
}

}  // namespace

TEST_CASE("abort ends the futures of a peer that is stopped midway") {
  SUBCASE("connect over TCP, without an answer") {
    std::shared_future<Connection> connection;
    StoppedPeer stopped([&](Communicator& communicator, int peer) {
      connection = communicator.connect({Transport::Ethernet, DeviceType::CPU}, peer);
    });
    stopped.expectAborted("connect", [&] { connection.get(); });
  }
  SUBCASE("memory that its owner does not hand out") {
    HostBuffer buffer(4096);
    StoppedPeer stopped([&](Communicator& communicator, int peer) {
      communicator.sendMemory(communicator.registerMemory(buffer.data(), 4096, Transport::SharedMemory), peer);
    });
    stopped.expectAborted("recvMemory", [&] { stopped.communicator.recvMemory(1).get(); });
  }
  SUBCASE("a counter that its owner does not hand out") {
    std::shared_future<Semaphore> semaphore;
    StoppedPeer stopped([&](Communicator& communicator, int peer) {
      semaphore = communicator.buildSemaphore(communicator.connect(Transport::SharedMemory, peer).get(), peer);
    });
    stopped.expectAborted("buildSemaphore", [&] { semaphore.get(); });
  }
}

namespace {

/// Forwards everything, and calls a function when the peer has reported that a step of a group operation succeeded.
class StepObserver : public Bootstrap {
 public:
  StepObserver(std::shared_ptr<Bootstrap> bootstrap, std::string step, std::function<void()> onStep)
      : bootstrap_(std::move(bootstrap)), step_(std::move(step)), onStep_(std::move(onStep)) {}

  int getRank() const override { return bootstrap_->getRank(); }
  int getNranks() const override { return bootstrap_->getNranks(); }
  int getNranksPerNode() const override { return bootstrap_->getNranksPerNode(); }
  void send(void* data, int size, int peer, int tag) override { bootstrap_->send(data, size, peer, tag); }
  void recv(void* data, int size, int peer, int tag) override {
    bootstrap_->recv(data, size, peer, tag);
    const std::string_view message(static_cast<const char*>(data), static_cast<std::size_t>(size));
    if (tag == GroupAgreementTag && message.find(step_) != std::string_view::npos) onStep_();
  }
  void allGather(void* data, int size) override { bootstrap_->allGather(data, size); }
  void barrier() override { bootstrap_->barrier(); }
  bool abortBlocked() noexcept override { return bootstrap_->abortBlocked(); }
  void abort() noexcept override { bootstrap_->abort(); }

 private:
  std::shared_ptr<Bootstrap> bootstrap_;
  std::string step_;
  std::function<void()> onStep_;
};

/// The last step of `setUp` maps the peer's memory. The peer stops after it has reported the step before.
void expectSetUpAborted(const std::string& name, const std::string& stepBefore,
                        const std::function<void(const std::shared_ptr<Communicator>&)>& setUp) {
  const UniqueId id = TcpBootstrap::createUniqueId();
  ChildProcess child([&] {
    setUp(std::make_shared<Communicator>(connectedBootstrap(1, 2, id)));
    while (true) ::pause();
  });
  std::atomic<bool> isStopped = false;
  const auto communicator =
      std::make_shared<Communicator>(std::make_shared<StepObserver>(connectedBootstrap(0, 2, id), stepBefore, [&] {
        child.stop();
        isStopped = true;
      }));
  expectAborted(
      name, [&] { setUp(communicator); },
      [&] {
        if (isStopped) communicator->abort();
      });
}

}  // namespace

TEST_CASE("abort ends a set-up of the group whose peer is stopped midway") {
  expectSetUpAborted("SymmetricMemory", "allocate memory", [](const std::shared_ptr<Communicator>& communicator) {
    const SymmetricMemory memory(*communicator, 4096, DeviceType::CPU);
  });
  const HostBuffer buffer(4096);
  expectSetUpAborted("RegisteredBuffer", "share its buffer", [&](const std::shared_ptr<Communicator>& communicator) {
    const RegisteredBuffer registered(*communicator, buffer.data(), 4096);
  });
  expectSetUpAborted("connectNvlsCollectiveOn", "attach memory", [](const std::shared_ptr<Communicator>& communicator) {
    connectNvlsCollectiveOn(DeviceType::CPU, communicator, {0, 1}, 4096);
  });
}

TEST_CASE("after an abort a set-up of the group fails") {
  const auto communicator = std::make_shared<Communicator>(connectedBootstrap(0, 1, TcpBootstrap::createUniqueId()));
  const auto connection = connectNvlsCollectiveOn(DeviceType::CPU, communicator, {0}, 4096);
  const HostBuffer buffer(4096);
  communicator->abort();
  const auto text = doctest::Contains("the communicator was aborted");
  CHECK_THROWS_WITH_AS(SymmetricMemory(*communicator, 4096, DeviceType::CPU), text, Error);
  CHECK_THROWS_WITH_AS(RegisteredBuffer(*communicator, buffer.data(), 4096), text, Error);
  CHECK_THROWS_WITH_AS(connectNvlsCollectiveOn(DeviceType::CPU, communicator, {0}, 4096), text, Error);
  CHECK_THROWS_WITH_AS(connection->bindMemory(buffer.data(), 4096), text, Error);
}

TEST_CASE("abort ends a send to a stopped peer, a flush, and a write that it does not take") {
  std::unique_ptr<TcpLink> side;
  StoppedPeer stopped([&](Communicator& communicator, int peer) { side = makeLink(communicator, peer); });
  SUBCASE("send, when the send queue is full") {
    stopped.expectAborted("send", [&] {
      while (true) stopped.communicator.bootstrap()->send(side->data.data(), 8 << 20, 1, 0);
    });
  }
  SUBCASE("flush") {
    side->update();
    stopped.expectAborted("flush", [&] { side->connection.flush(); });
  }
  SUBCASE("write") {
    stopped.expectAborted("write", [&] {
      while (true) side->connection.write(side->remote, 0, side->local, 0, side->data.size());
    });
    CHECK_THROWS_AS(side->connection.write(side->remote, 0, side->local, 0, 1), Error);
  }
}

TEST_CASE("the failure of a stopped peer ends a flush and a write to it, and nothing else") {
  std::vector<std::unique_ptr<TcpLink>> links;
  StoppedPeer stopped(
      [&](Communicator& communicator, int peer) {
        for (int i = 0; i < 4; ++i) links.push_back(makeLink(communicator, peer));
      },
      5s);
  for (const auto& side : links) side->update();
  expectRankFailure("rank 1 failed: ", [&] { links[0]->connection.flush(60'000'000); });
  expectRankFailure("rank 1 failed: ", [&] {
    while (true) links[1]->connection.write(links[1]->remote, 0, links[1]->local, 0, links[1]->data.size());
  });

  TcpLink own(stopped.communicator, 0, 8);
  own.update();
  own.connection.flush();

  // The data on the other connections never arrives: their destructors do not wait for it, which would take 5 s each.
  const auto start = std::chrono::steady_clock::now();
  links.clear();
  CHECK(test::secondsSince(start) < 10);
}

TEST_CASE("abort ends a proxy that serves a stopped peer, and the waits on its channel") {
  std::unique_ptr<TcpLink> side;
  Semaphore counters;
  StoppedPeer stopped([&](Communicator& communicator, int peer) {
    side = makeLink(communicator, peer);
    counters = communicator.buildSemaphore(side->connection, peer).get();
  });
  ProxyService service({.thread = {.device = DeviceType::CPU}});
  const auto semaphore = service.addSemaphore(counters);
  const auto dst = service.addMemory(side->remote);
  const auto src = service.addMemory(side->local);
  service.startProxy();
  const PortChannel channel = service.portChannel(semaphore, dst, src);
  auto handle = channel.deviceHandle();
  std::atomic<bool> hasEnded = false;
  bool succeeded = true;
  std::thread kernel([&] {
    for (int i = 0; i < 4; ++i) handle.put(0, 0, side->data.size());
    succeeded = handle.flush();
    hasEnded = true;
  });
  std::this_thread::sleep_for(200ms);
  CHECK_FALSE(hasEnded);
  const auto start = std::chrono::steady_clock::now();
  stopped.communicator.abort();
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
  CHECK_THROWS_AS(stopped.communicator.monitor(DeviceType::CPU)->check(), Error);
}
