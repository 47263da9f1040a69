// MSCCL++'s host interface as its users call it, where no GPU is needed: section by section, with its header names.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mscclpp/core.hpp>
#include <mscclpp/env.hpp>
#include <mscclpp/errors.hpp>
#include <mscclpp/npkit/npkit.hpp>
#include <mscclpp/semaphore.hpp>
#include <mscclpp/utils.hpp>
#include <mutex>
#include <sstream>

#include "tests/host/ranks.hpp"

using namespace mscclpp;
using mscclpp::test::onProcesses;
using mscclpp::test::onThreads;
using mscclpp::test::Outcomes;
using mscclpp::test::secondsSince;

namespace {

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

void checkAll(const Outcomes& outcomes) {
  for (const auto& outcome : outcomes) CHECK(outcome == "");
}

std::string localAddress() {
  return "lo:127.0.0.1:" + std::to_string(mscclpp::test::freePort());
}

/// A user-defined bootstrap, such as one over MPI; here over queues within one process.
class QueueBootstrap : public Bootstrap {
 public:
  struct SharedQueues {
    explicit SharedQueues(int ranks) : ranks(ranks) {}
    int ranks;
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::array<int, 3>, std::deque<std::vector<char>>> queues;  // from, to, tag
  };

  QueueBootstrap(std::shared_ptr<SharedQueues> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}
  int getRank() const override { return rank_; }
  int getNranks() const override { return shared_->ranks; }
  int getNranksPerNode() const override { return shared_->ranks; }
  void send(void* data, int size, int peer, int tag) override {
    const auto* bytes = static_cast<const char*>(data);
    std::lock_guard lock(shared_->mutex);
    shared_->queues[{rank_, peer, tag}].emplace_back(bytes, bytes + size);
    shared_->changed.notify_all();
  }
  void recv(void* data, int size, int peer, int tag) override {
    std::unique_lock lock(shared_->mutex);
    auto& queue = shared_->queues[{peer, rank_, tag}];
    if (!shared_->changed.wait_for(lock, std::chrono::seconds(30), [&] { return !queue.empty(); })) {
      throw std::runtime_error("nothing came");
    }
    require(static_cast<int>(queue.front().size()) == size, "message size");
    std::memcpy(data, queue.front().data(), static_cast<std::size_t>(size));
    queue.pop_front();
  }
  void allGather(void* allData, int size) override {
    auto* slots = static_cast<char*>(allData);
    for (int peer = 0; peer < getNranks(); ++peer) {
      if (peer != rank_) send(slots + rank_ * size, size, peer, 9999);
    }
    for (int peer = 0; peer < getNranks(); ++peer) {
      if (peer != rank_) recv(slots + peer * size, size, peer, 9999);
    }
  }
  void barrier() override {
    std::vector<int> ranks(static_cast<std::size_t>(getNranks()));
    allGather(ranks.data(), sizeof(int));
  }

 private:
  std::shared_ptr<SharedQueues> shared_;
  int rank_;
};

// Two hosts exchange numbers: writes and signals over TCP, each in its own memory.
void pingPongOfHosts(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  const int peer = 1 - rank;
  Communicator comm(bootstrap);
  auto connection = comm.connect({Transport::Ethernet, {DeviceType::CPU}}, peer).get();
  require(connection.transport() == Transport::Ethernet, "transport");
  require(connection.localDevice().type == DeviceType::CPU, "device");
  require(comm.remoteRankOf(connection) == peer && comm.tagOf(connection) == 0, "whose connection");
  std::vector<std::uint64_t> mine(1000), theirs(1000);
  auto local = comm.registerMemory(mine.data(), mine.size() * 8, Transport::Ethernet);
  auto receiveRegion = comm.registerMemory(theirs.data(), theirs.size() * 8, Transport::Ethernet);
  comm.sendMemory(receiveRegion, peer);
  auto remote = comm.recvMemory(peer).get();
  Host2HostSemaphore semaphore(comm, connection);
  if (rank == 0) require(!semaphore.poll(), "the peer signals later");
  for (std::uint64_t round = 0; round < 20; ++round) {
    if (static_cast<int>(round % 2) == rank) {
      for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = round * 10000 + i;
      semaphore.connection().write(remote, 0, local, 0, mine.size() * 8);
      semaphore.signal();
      connection.flush();
    } else {
      semaphore.wait(-1);
      for (std::size_t i = 0; i < theirs.size(); ++i)
        require(theirs[i] == round * 10000 + i, "a number that was written");
    }
  }
  bool timedOut = false;
  try {
    semaphore.wait(100);
  } catch (const Error& error) {
    timedOut = error.getErrorCode() == ErrorCode::Timeout;
  }
  require(timedOut, "a wait for nothing ends");
  bootstrap->barrier();
}

}  // namespace

// First case: a process must fork before it has threads.
TEST_CASE("compat host: two processes, each with its own memory, over TCP") {
  const std::string address = localAddress();
  checkAll(onProcesses(2, [&](int rank) {
    auto bootstrap = std::make_shared<TcpBootstrap>(rank, 2);
    bootstrap->initialize(address);
    pingPongOfHosts(bootstrap);
  }));
}

TEST_CASE("compat host: error messages") {
  CHECK(std::string(Error("nobody came", ErrorCode::Timeout).what()) == "nobody came (mscclpp failure: Timeout)");
  CHECK(std::string(Error("x", ErrorCode::SystemError).what()) == "x (mscclpp failure: SystemError)");
  CHECK(std::string(Error("x", ErrorCode::InternalError).what()) == "x (mscclpp failure: InternalError)");
  CHECK(std::string(Error("x", ErrorCode::InvalidUsage).what()) == "x (mscclpp failure: InvalidUsage)");
  CHECK(std::string(Error("x", ErrorCode::Aborted).what()) == "x (mscclpp failure: Aborted)");
  CHECK(std::string(Error("x", ErrorCode::ExecutorError).what()) == "x (mscclpp failure: ExecutorError)");
  CHECK(Error("x", ErrorCode::Aborted).getErrorCode() == ErrorCode::Aborted);
  CHECK(std::string(SysError("open", ENOENT).what()) == "open (System failure: No such file or directory)");
  CHECK(std::string(IbError("post", EINVAL).what()) == "post (Ib failure: Invalid argument)");
  CHECK(SysError("open", ENOENT).getErrorCode() == ENOENT);
  CHECK(BaseError("x", 3).getErrorCode() == 3);
  CHECK(BaseError(7).getErrorCode() == 7);
  CHECK(errorToString(ErrorCode::Timeout) == "Timeout");
  CHECK_THROWS_AS(throw CuError("x", 1), std::runtime_error);
}

TEST_CASE("compat host: transports, devices, configurations") {
  std::ostringstream names;
  names << Transport::Unknown << ' ' << Transport::CudaIpc << ' ' << Transport::IB0 << ' ' << Transport::IB7 << ' '
        << Transport::Ethernet;
  CHECK(names.str() == "UNK IPC IB0 IB7 ETH");
  TransportFlags flags = Transport::CudaIpc | Transport::IB3;
  CHECK(flags.has(Transport::IB3));
  CHECK(flags.count() == 2);
  CHECK((flags & AllIBTransports) == TransportFlags(Transport::IB3));
  CHECK((flags ^ Transport::IB3) == TransportFlags(Transport::CudaIpc));
  flags &= ~Transport::IB3;
  CHECK(flags != AllTransports);
  CHECK(NoTransports.none());
  CHECK(AllTransports.all());
  CHECK(AllIBTransports.toBitset().count() == 8);

  const EndpointConfig plain = Transport::CudaIpc;
  CHECK(plain.device == Device(DeviceType::GPU));
  const EndpointConfig config = {Transport::IB1, {DeviceType::GPU, 3}};
  CHECK(config.device.id == 3);
  CHECK(config.maxWriteQueueSize == -1);
  EndpointConfig::Ib ib;
  ib.mode = EndpointConfig::Ib::Mode::HostNoAtomic;
  CHECK(EndpointConfig(Transport::IB1, DeviceType::CPU, 128, ib).ib.maxCqSize == EndpointConfig::Ib::DefaultMaxCqSize);
  CHECK(EndpointConfig().transport == Transport::Unknown);
  CHECK(version() == "0.9.0");
  CHECK(UniqueIdBytes == 128);
}

TEST_CASE("compat host: a bootstrap by UniqueId: tags in any order, sends to itself, vectors, groups") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  checkAll(onThreads(3, [&](int rank) {
    auto bootstrap = std::make_shared<TcpBootstrap>(rank, 3);
    bootstrap->initialize(id);
    require(bootstrap->getUniqueId() == id, "the token");
    require(bootstrap->getNranksPerNode() == 3 && bootstrap->getNranksPerIpcDomain() == 3, "one host");
    std::array<int, 3> all{};
    all[static_cast<std::size_t>(rank)] = rank + 1;
    bootstrap->allGather(all.data(), sizeof(int));
    require(all == std::array{1, 2, 3}, "allGather");
    const int next = (rank + 1) % 3, last = (rank + 2) % 3;
    int ten = 10 + rank, twenty = 20 + rank, got = 0;
    bootstrap->send(&ten, sizeof(int), next, 1);
    bootstrap->send(&twenty, sizeof(int), next, 2);
    bootstrap->recv(&got, sizeof(int), last, 2);
    require(got == 20 + last, "tag 2");
    bootstrap->recv(&got, sizeof(int), last, 1);
    require(got == 10 + last, "tag 1");
    bootstrap->send(&ten, sizeof(int), rank, 5);
    bootstrap->recv(&got, sizeof(int), rank, 5);
    require(got == ten, "to oneself");
    Bootstrap& base = *bootstrap;
    base.send(std::vector<char>(static_cast<std::size_t>(rank) * 1000), next, 0);
    std::vector<char> vector;
    base.recv(vector, last, 0);
    require(vector.size() == static_cast<std::size_t>(last) * 1000, "a vector");
    if (rank != 1) bootstrap->groupBarrier({0, 2});
    int word = rank == 2 ? 77 : 0;
    bootstrap->broadcast(&word, sizeof(int), 2);
    require(word == 77, "broadcast");
    bootstrap->barrier();
  }));
}

TEST_CASE("compat host: initialised again and again in one process, and by address") {
  for (int turn = 0; turn < 5; ++turn) {
    const UniqueId id = TcpBootstrap::createUniqueId();
    static_cast<void>(TcpBootstrap::createUniqueId());  // never used
    const std::string address = localAddress();
    checkAll(onThreads(2, [&](int rank) {
      TcpBootstrap byToken(rank, 2), byAddress(rank, 2);
      byToken.initialize(id);
      byAddress.initialize(address);
      byToken.barrier();
      byAddress.barrier();
    }));
  }
}

TEST_CASE("compat host: if a rank does not join, initialize times out in time") {
  const auto start = std::chrono::steady_clock::now();
  TcpBootstrap bootstrap(0, 2);
  try {
    bootstrap.initialize(TcpBootstrap::createUniqueId(), 1);
    FAIL("there is nobody");
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::Timeout);
    CHECK(std::string(error.what()).ends_with(" (mscclpp failure: Timeout)"));
  }
  CHECK(secondsSince(start) >= 0.9);
  CHECK(secondsSince(start) < 10);
}

TEST_CASE("compat host: futures are deferred and complete in call order") {
  auto shared = std::make_shared<QueueBootstrap::SharedQueues>(2);
  checkAll(onThreads(2, [&](int rank) {
    auto bootstrap = std::make_shared<QueueBootstrap>(shared, rank);
    Communicator comm(bootstrap);
    std::array<char, 64> memory{};
    const int peer = 1 - rank;
    std::vector<std::shared_future<RegisteredMemory>> futures;
    for (int i = 0; i < 4; ++i) futures.push_back(comm.recvMemory(peer, i % 2));
    require(futures[0].wait_for(std::chrono::seconds(0)) == std::future_status::deferred, "deferred");
    bootstrap->barrier();
    for (std::size_t i = 0; i < 4; ++i) {  // only the communicator holds the registration
      comm.sendMemory(comm.registerMemory(memory.data(), 10 + i, NoTransports), peer, static_cast<int>(i % 2));
    }
    require(futures[3].get().size() == 13, "the order of the calls");
    require(futures[1].wait_for(std::chrono::seconds(0)) == std::future_status::ready, "the earlier one with it");
    require(futures[2].wait_for(std::chrono::seconds(0)) == std::future_status::deferred, "not that of another tag");
    for (std::size_t i : {1, 2, 0}) require(futures[i].get().size() == 10 + i, "the order of the calls");
    bool outOfRange = false;
    try {
      static_cast<void>(comm.remoteRankOf(Connection()));
    } catch (const std::out_of_range&) {
      outOfRange = true;
    }
    require(outOfRange, "an unknown connection");
    bootstrap->barrier();
  }));
}

TEST_CASE("compat host: a connection, memory and a semaphore with oneself") {
  auto bootstrap = std::make_shared<TcpBootstrap>(0, 1);
  bootstrap->initialize(TcpBootstrap::createUniqueId());
  Communicator comm(bootstrap);
  auto connections = std::array{comm.connect({Transport::Ethernet, DeviceType::CPU}, 0, 3),
                                comm.connect({Transport::Ethernet, DeviceType::CPU}, 0, 3)};
  auto first = connections[0].get();
  CHECK(comm.tagOf(first) == 3);
  auto incoming = comm.recvMemory(0);  // before the send: either order
  std::array<std::uint64_t, 4> from{1, 2, 3, 4}, to{};
  auto local = comm.registerMemory(from.data(), sizeof(from), Transport::Ethernet);
  auto receiveRegion = comm.registerMemory(to.data(), sizeof(to), Transport::Ethernet);
  comm.sendMemory(receiveRegion, 0);
  auto remote = incoming.get();
  CHECK(remote.originalDataPtr() == to.data());
  first.write(remote, 8, local, 0, 16);
  std::uint64_t word = 0;
  first.updateAndSync(remote, 0, &word, 9);
  first.flush();
  CHECK(word == 9);
  CHECK(to == std::array<std::uint64_t, 4>{9, 1, 2, 0});
  auto semaphores = std::array{comm.buildSemaphore(first, 0), comm.buildSemaphore(connections[1].get(), 0)};
  CHECK(semaphores[0].get().localMemory().size() == 8);
  CHECK(semaphores[1].get().remoteMemory().size() == 8);
}

TEST_CASE("compat host: the same over a user-defined bootstrap") {
  auto shared = std::make_shared<QueueBootstrap::SharedQueues>(2);
  checkAll(onThreads(2, [&](int rank) { pingPongOfHosts(std::make_shared<QueueBootstrap>(shared, rank)); }));
}

TEST_CASE("compat host: without a bootstrap the user moves the bytes") {
  auto context = Context::create();
  const auto a = context->createEndpoint({Transport::Ethernet, DeviceType::CPU});
  const auto b = context->createEndpoint({Transport::Ethernet, DeviceType::CPU});
  CHECK(Endpoint::deserialize(a.serialize()).hostHash() == b.hostHash());
  auto forth = context->connect(a, Endpoint::deserialize(b.serialize()));
  auto back = context->connect(b, Endpoint::deserialize(a.serialize()));
  SemaphoreStub here(forth), there(back);
  const Semaphore semaphore(here, SemaphoreStub::deserialize(there.serialize()));
  const Semaphore other(there, SemaphoreStub::deserialize(here.serialize()));
  Host2HostSemaphore left(semaphore), right(other);
  left.signal();
  right.wait();
  CHECK_FALSE(right.poll());
  CHECK_THROWS_AS(Endpoint::deserialize({'x'}), Error);
}

TEST_CASE("compat host: host names, hashes, the environment, events that are not collected") {
  const std::string whole = getHostName(1024, '\n');
  CHECK_FALSE(whole.empty());
  CHECK(getHostName(1024, '.') == whole.substr(0, whole.find('.')));
  CHECK(getHostName(1, '\n') == whole.substr(0, 1));
  std::size_t one = 0, two = 0;
  detail::hashCombine(one, 1);
  detail::hashCombine(one, 2);
  detail::hashCombine(two, 2);
  detail::hashCombine(two, 1);
  CHECK(one != two);
  CHECK(env() == env());
  CHECK(env()->ibvMode == "host");
  CHECK_FALSE(isFabricMemHandleAvailable());
  NpKit::Init(0);
  NpKit::CollectCpuEvent(1, 2, 3, *NpKit::GetCpuTimestamp(), 0);
  NpKit::Dump("nowhere");
  NpKit::Shutdown();
  CHECK(NpKit::GetGpuEventCollectContexts() == nullptr);
}
