// Communicator::abort() from another thread ends whatever waits: the ranks' meeting, calls of the bootstrap, futures,
// connections to a peer that is stopped, and proxies that serve them. Losing a rank ends the connections to it alike.
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
#include "mscclpp/host/host_buffer.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "mscclpp/host/proxy_service.hpp"
#include "ranks.hpp"

using namespace mscclpp;
using namespace std::chrono_literals;
using test::ChildProcess;
using test::onThreads;

namespace {

// Seconds: less than the 30 after which the calls end by themselves, and more than a busy machine sleeps.
constexpr double soon = 15;

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// By default a rank that is stopped does not count as lost.
std::shared_ptr<TcpBootstrap> meet(int rank, int ranks, const UniqueId& id,
                                   std::chrono::milliseconds heartbeatTimeout = 0ms) {
  auto bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
  bootstrap->setHeartbeatTimeout(heartbeatTimeout);
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

TEST_CASE("abort ends the meeting of the ranks") {
  const auto aborted = [](const std::string& name, const UniqueId& id, int rank, int ranks) {
    const auto bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
    Communicator communicator(bootstrap);
    endsByAbort(
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
  // Rank 2 never comes.
  for (const int impatient : {0, 1}) {
    const std::string name = "initialize of rank " + std::to_string(impatient) + ", which another has reached";
    SUBCASE(name.c_str()) {
      const UniqueId id = TcpBootstrap::createUniqueId();
      const auto outcomes = onThreads(2, [&](int rank) {
        if (rank == impatient) return aborted(name, id, rank, 3);
        TcpBootstrap bootstrap(rank, 3);
        // The other may have left before this one came.
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
  // And then they meet after all.
  const UniqueId id = TcpBootstrap::createUniqueId();
  for (const std::string& outcome : onThreads(3, [&](int rank) { meet(rank, 3, id)->barrier(); })) CHECK(outcome == "");
}

namespace {

/// Two ranks that have met and prepared the same; the peer, a process of its own, is stopped then.
class StoppedPeer {
 public:
  using Prepare = std::function<void(Communicator& communicator, int peer)>;

  explicit StoppedPeer(const Prepare& prepare, std::chrono::milliseconds heartbeatTimeout = 0ms)
      : id_(TcpBootstrap::createUniqueId()),
        child_([&] {
          Communicator communicator(meet(1, 2, id_, heartbeatTimeout));
          prepare(communicator, 0);
          communicator.bootstrap()->barrier();
          while (true) ::pause();
        }),
        communicator(meet(0, 2, id_, heartbeatTimeout)) {
    prepare(communicator, 1);
    communicator.bootstrap()->barrier();
    child_.stop();
  }
  ~StoppedPeer() {
    child_.kill(SIGKILL);
    child_.kill(SIGCONT);
  }

  void endsByAbort(const std::string& name, const std::function<void()>& call) {
    ::endsByAbort(name, call, [this] { communicator.abort(); });
  }

 private:
  UniqueId id_;
  ChildProcess child_;

 public:
  Communicator communicator;
};

const EndpointConfig overTcp(Transport::Ethernet, DeviceType::CPU);

/// One side of a connection over TCP, with memory at both ends.
struct Side {
  Side(Communicator& communicator, int peer)
      : connection(communicator.connect(overTcp, peer).get()),
        data(8 << 20),
        local(communicator.registerMemory(data.data(), data.size(), Transport::Ethernet)) {
    communicator.sendMemory(local, peer);
    remote = communicator.recvMemory(peer).get();
    semaphore = communicator.buildSemaphore(connection, peer).get();
  }

  Connection connection;
  std::vector<char> data;
  RegisteredMemory local;
  RegisteredMemory remote;
  Semaphore semaphore;
};

}  // namespace

TEST_CASE("abort ends the futures of a peer that is stopped in the middle") {
  SUBCASE("connect over TCP, which nobody answers") {
    std::shared_future<Connection> connection;
    StoppedPeer stopped(
        [&](Communicator& communicator, int peer) { connection = communicator.connect(overTcp, peer); });
    stopped.endsByAbort("connect", [&] { connection.get(); });
  }
  SUBCASE("memory that its owner does not hand out") {
    HostBuffer buffer(4096);
    StoppedPeer stopped([&](Communicator& communicator, int peer) {
      communicator.sendMemory(communicator.registerMemory(buffer.data(), 4096, Transport::SharedMemory), peer);
    });
    stopped.endsByAbort("recvMemory", [&] { stopped.communicator.recvMemory(1).get(); });
  }
  SUBCASE("a counter that its owner does not hand out") {
    std::shared_future<Semaphore> semaphore;
    StoppedPeer stopped([&](Communicator& communicator, int peer) {
      semaphore = communicator.buildSemaphore(communicator.connect(Transport::SharedMemory, peer).get(), peer);
    });
    stopped.endsByAbort("buildSemaphore", [&] { semaphore.get(); });
  }
}

TEST_CASE("abort ends a send to a stopped peer, a flush, and a write that it does not take") {
  std::unique_ptr<Side> side;
  StoppedPeer stopped([&](Communicator& communicator, int peer) { side = std::make_unique<Side>(communicator, peer); });
  SUBCASE("send, when the outbox is full") {
    stopped.endsByAbort("send", [&] {
      while (true) stopped.communicator.bootstrap()->send(side->data.data(), 8 << 20, 1, 0);
    });
  }
  SUBCASE("flush") {
    std::uint64_t word = 0;
    side->connection.updateAndSync(side->remote, 0, &word, 1);
    stopped.endsByAbort("flush", [&] { side->connection.flush(); });
  }
  SUBCASE("write") {
    stopped.endsByAbort("write", [&] {
      while (true) side->connection.write(side->remote, 0, side->local, 0, side->data.size());
    });
    CHECK_THROWS_AS(side->connection.write(side->remote, 0, side->local, 0, 1), Error);
  }
}

TEST_CASE("losing a stopped peer ends a flush and a write to it, and nothing else") {
  std::vector<std::unique_ptr<Side>> sides;
  StoppedPeer stopped(
      [&](Communicator& communicator, int peer) {
        for (int i = 0; i < 4; ++i) sides.push_back(std::make_unique<Side>(communicator, peer));
      },
      5s);
  std::uint64_t word = 0;
  const auto update = [&](Side& side) { side.connection.updateAndSync(side.remote, 0, &word, 1); };
  const auto endsByLoss = [](const std::function<void()>& call) {
    const auto start = std::chrono::steady_clock::now();
    try {
      call();
      CHECK_MESSAGE(false, "nothing was thrown");
    } catch (const Error& error) {
      CAPTURE(error.what());
      CHECK(error.getErrorCode() == ErrorCode::RemoteError);
      CHECK(std::string(error.what()).find("rank 1 was lost: ") != std::string::npos);
    }
    CHECK(test::secondsSince(start) < soon);
  };
  for (const auto& side : sides) update(*side);
  endsByLoss([&] { sides[0]->connection.flush(60'000'000); });
  endsByLoss([&] {
    while (true) sides[1]->connection.write(sides[1]->remote, 0, sides[1]->local, 0, sides[1]->data.size());
  });

  Side own(stopped.communicator, 0);
  update(own);
  own.connection.flush();

  // What the others carry will never arrive: they do not wait for it, which would take 5 s each.
  const auto start = std::chrono::steady_clock::now();
  sides.clear();
  CHECK(test::secondsSince(start) < 10);
}

TEST_CASE("abort ends a proxy that serves a stopped peer, and the waits on its channel") {
  std::unique_ptr<Side> side;
  StoppedPeer stopped([&](Communicator& communicator, int peer) { side = std::make_unique<Side>(communicator, peer); });
  ProxyService service({.thread = {.device = DeviceType::CPU}});
  const auto semaphore = service.addSemaphore(side->semaphore);
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
