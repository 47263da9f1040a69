// A forked child that destroys its copies of everything that the library has made, while threads of its parent run and
// wait in the library.
#include <doctest/doctest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "host/memory/host_allocation.hpp"
#include "host/transport/context_state.hpp"
#include "host/transport/tcp/registry.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/channel/device_handle.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/registered_buffers.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "mscclpp/host/trace/trace.hpp"
#include "tests/host/proxy/port_rank.hpp"
#include "tests/host/ranks.hpp"

using namespace mscclpp;
using namespace std::chrono_literals;
using Registration = detail::tcp::Registration;

namespace {

constexpr std::size_t words = 4096;

// What a rank makes. Ranks 0 and 1 are connected by TCP and shared memory, and have started their proxies.
struct Rank {
  Rank(const UniqueId& id, int rank) : bootstrap(std::make_shared<TcpBootstrap>(rank, 3)) {
    bootstrap->setHeartbeatTimeout(0ms);  // the test blocks the thread that sends heartbeats
    bootstrap->initialize(id);
    communicator = std::make_unique<Communicator>(bootstrap);
    monitor = communicator->monitor(DeviceType::CPU);
    symmetric = std::make_unique<SymmetricMemory>(*communicator, 4096, DeviceType::CPU);
    registered = buffers.add(RegisteredBuffer(*communicator, buffer.data(), 4096));
    if (rank == 2) return;
    auto options = test::portOptions();
    options.thread.trace = trace.track("proxy");
    for (const auto transport : {Transport::Ethernet, Transport::SharedMemory}) {
      ends.push_back(std::make_unique<test::PortEnd<ProxyTrigger>>(*communicator, 1 - rank, words, options, transport));
      channels.push_back(ends.back()->channel());
      ends.back()->service.startProxy(true);
    }
  }

  std::shared_ptr<TcpBootstrap> bootstrap;
  std::unique_ptr<Communicator> communicator;
  std::shared_ptr<WaitMonitor> monitor;
  std::unique_ptr<SymmetricMemory> symmetric;
  HostBuffer buffer{4096};
  RegisteredBuffers buffers;
  RegisteredBuffers::Handle registered;
  Trace trace{TraceOptions{}};
  std::vector<std::unique_ptr<test::PortEnd<ProxyTrigger>>> ends;
  std::vector<PortChannel> channels;
};

// Threads of which each makes one call that waits until the test lets it go on.
class WaitingThreads {
 public:
  void add(std::function<void()> call) {
    std::promise<int> id;
    auto started = id.get_future();
    threads_.emplace_back([call = std::move(call), id = std::move(id)]() mutable {
      id.set_value(static_cast<int>(::syscall(SYS_gettid)));
      call();
    });
    ids_.push_back(started.get());
  }
  /// Returns when each thread sleeps in the kernel.
  void waitUntilAsleep() const {
    for (const int id : ids_) {
      for (char state = 0; state != 'S'; std::this_thread::yield()) {
        std::ifstream file("/proc/self/task/" + std::to_string(id) + "/stat");
        std::string line;
        std::getline(file, line);
        const auto nameEnd = line.rfind(')');
        REQUIRE(nameEnd != std::string::npos);  // otherwise the thread has ended
        state = line[nameEnd + 2];
      }
    }
  }
  void join() {
    for (auto& thread : threads_) thread.join();
  }

 private:
  std::vector<std::thread> threads_;
  std::vector<int> ids_;
};

}  // namespace

TEST_CASE("a forked child can destroy everything, whatever the threads of its parent are doing") {
  std::array<std::unique_ptr<Rank>, 3> ranks;
  const UniqueId id = TcpBootstrap::createUniqueId();
  REQUIRE(test::onThreads(3, [&](int rank) { ranks[rank] = std::make_unique<Rank>(id, rank); }) == test::Outcomes(3));
  Communicator& communicator = *ranks[0]->communicator;
  const RegisteredMemory& memory = ranks[1]->symmetric->memory(1);

  WaitingThreads waiting;
  // In the bootstrap.
  int received = 0;
  waiting.add([&] { ranks[0]->bootstrap->recv(&received, sizeof(received), 1, 9); });
  // In a communicator: one of these two receives, and the other waits for it. The third receives from itself.
  std::vector<std::shared_future<RegisteredMemory>> futures{
      communicator.recvMemory(1, 5), communicator.recvMemory(1, 5), communicator.recvMemory(0, 6)};
  for (const auto& future : futures) waiting.add([&future] { future.wait(); });
  // For the TCP transport to finish writing to memory that is being deregistered.
  std::array<char, 8> storage{};
  auto registration = std::make_shared<Registration>(storage.data(), storage.size(), -1);
  auto guard = Registration::acquire(registration);
  waiting.add([registered = registration.get()] { registered->deregister(); });
  // In a callback, which the bootstrap calls with its lock held.
  std::promise<void> departed;
  std::promise<void> released;
  ranks[0]->bootstrap->onDeparture([&](int) {
    departed.set_value();
    released.get_future().wait();
  });
  ranks[2].reset();
  departed.get_future().wait();
  waiting.waitUntilAsleep();

  // These hold locks most of the time.
  std::atomic<bool> stopping{false};
  std::vector<std::thread> busy;
  busy.emplace_back([&] {
    while (!stopping) detail::HostAllocation::find(ranks[0]->ends[0]->source.data(), 8);
  });
  busy.emplace_back([&] {
    while (!stopping) communicator.context()->state().allocateCounter(DeviceType::CPU);
  });
  busy.emplace_back([&] {
    while (!stopping) communicator.remoteRankOf(ranks[0]->ends[0]->connection);
  });
  busy.emplace_back([&] {
    while (!stopping) static_cast<void>(ranks[0]->buffers.find(ranks[0]->buffer.data(), 8));
  });
  busy.emplace_back([&stopping, copy = registration] {
    while (!stopping) Registration::acquire(copy);  // it is being deregistered: returns nothing
  });

  for (int round = 0; round < 20; ++round) {
    test::ChildProcess child([&] {
      ::alarm(10);
      futures.clear();
      guard = {};
      registration.reset();
      for (auto& rank : ranks) rank.reset();
    });
    const std::string outcome = child.wait();
    CHECK(outcome == "");
    if (!outcome.empty()) break;
  }

  // The parent goes on.
  stopping = true;
  for (auto& thread : busy) thread.join();
  released.set_value();
  guard = {};
  int sent = 42;
  ranks[1]->bootstrap->send(&sent, sizeof(sent), 0, 9);
  for (int i = 0; i < 2; ++i) ranks[1]->communicator->sendMemory(memory, 0, 5);
  communicator.sendMemory(ranks[0]->symmetric->memory(0), 0, 6);
  waiting.join();
  CHECK(received == 42);
  for (const auto& future : futures) CHECK(future.get().size() == 4096);
  for (std::size_t i = 0; i < ranks[0]->ends.size(); ++i) {
    ranks[0]->ends[i]->source.write(std::vector<std::uint64_t>(words, 7));
    CHECK(deviceHandle(ranks[0]->channels[i]).putWithSignalAndFlush(0, words * 8));
    CHECK(deviceHandle(ranks[1]->channels[i]).wait());
    CHECK(ranks[1]->ends[i]->target.read() == std::vector<std::uint64_t>(words, 7));
  }
  for (auto& rank : ranks) {
    if (rank) CHECK_FALSE(rank->bootstrap->failure().has_value());
  }
}
