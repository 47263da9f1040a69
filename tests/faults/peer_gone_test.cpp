// A table: each call that waits for a peer, and each way in which the peer may fail it. The call ends in time, with an
// error that names the peer; then this process destroys everything, holds no more than before, and starts again.
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "host/process_resources.hpp"
#include "host/ranks.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/memory_semaphore.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "mscclpp/host/proxy_service.hpp"
#include "mscclpp/host/symmetric_memory.hpp"
#include "mscclpp/kernels/collectives.hpp"

using namespace mscclpp;
using namespace std::chrono_literals;

namespace {

constexpr double timeout = 1;  // seconds, of every call that is tried; what comes before has the usual 30
// After the timeout; on a machine with more to do than this test.
constexpr double slack = 3;

// Before the library reads it.
[[maybe_unused]] const bool hasTimeout = [] {
  ::setenv("MSCCLPP_WAIT_TIMEOUT", "1", 1);
  return true;
}();

enum class Fate { Absent, Exits, Killed, Stopped };
constexpr const char* fateNames[] = {"stays away", "exits", "is killed", "is stopped"};

struct Side {
  Side(int ownRank, const UniqueId& id) : rank(ownRank), bootstrap(std::make_shared<TcpBootstrap>(ownRank, 2)) {
    bootstrap->initialize(id);
    communicator = std::make_shared<Communicator>(bootstrap);
  }
  int peer() const { return 1 - rank; }
  Connection connect(Transport transport) {
    return communicator->connect(EndpointConfig(transport, DeviceType::CPU), peer()).get();
  }

  int rank;
  std::shared_ptr<TcpBootstrap> bootstrap;
  std::shared_ptr<Communicator> communicator;
};

/// What both sides do first; the result is the call that waits, for rank 0 to make.
using Prepare = std::function<std::function<void()>(Side&)>;

struct Operation {
  const char* name;
  const char* names;  ///< what an error must contain
  bool needsPeer;     ///< false: the peer's process serves it though its program does nothing
  Prepare prepare;
};

std::function<void()> reduce(Side& side, std::size_t count) {
  auto collectives = std::make_shared<Collectives>(side.communicator, DeviceType::CPU);
  auto values = std::make_shared<std::vector<float>>(count, 1.0F);
  return [=] {
    collectives->allReduce(values->data(), values->data(), count, DataType::FLOAT32, ReduceOp::SUM);
    collectives->check();
  };
}

std::function<void()> overTcp(Side& side, const std::function<void(Connection&, const RegisteredMemory&)>& call) {
  struct State {
    Connection connection;
    std::vector<char> data = std::vector<char>(64);
    RegisteredMemory local;
    RegisteredMemory remote;
  };
  auto state = std::make_shared<State>();
  state->connection = side.connect(Transport::Ethernet);
  state->local = side.communicator->registerMemory(state->data.data(), state->data.size(), Transport::Ethernet);
  side.communicator->sendMemory(state->local, side.peer());
  state->remote = side.communicator->recvMemory(side.peer()).get();
  return [=] { call(state->connection, state->remote); };
}

// The proxy meets the failure first, or the bootstrap does, which knows the rank.
std::function<void()> flushPort(Side& side) {
  struct State {
    std::vector<char> data = std::vector<char>(64);
    ProxyService service{ProxyServiceOptions{.thread = {.device = DeviceType::CPU}}};
    PortChannel channel;
  };
  auto state = std::make_shared<State>();
  const Connection connection = side.connect(Transport::Ethernet);
  const auto local = side.communicator->registerMemory(state->data.data(), state->data.size(), Transport::Ethernet);
  side.communicator->sendMemory(local, side.peer());
  const auto remote = side.communicator->recvMemory(side.peer()).get();
  const auto semaphore = state->service.buildAndAddSemaphore(*side.communicator, connection);
  const auto dst = state->service.addMemory(remote);
  state->channel = state->service.portChannel(semaphore, dst, state->service.addMemory(local));
  if (side.rank == 0) state->service.startProxy();
  return [&side, state] {
    auto handle = state->channel.deviceHandle();
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (std::chrono::steady_clock::now() < end) {  // until the peer's fate has come
      handle.put(0, 0, 64);
      if (handle.flush()) continue;
      state->service.check();
      side.communicator->monitor(DeviceType::CPU)->check();
    }
  };
}

const std::vector<Operation>& operations() {
  static const std::vector<Operation> table = {
      {"recv", "rank 1", true,
       [](Side& side) {
         return [&side] {
           char byte;
           side.bootstrap->recv(&byte, 1, 1, 3);
         };
       }},
      {"barrier", "rank 1", true, [](Side& side) { return [&side] { side.bootstrap->barrier(); }; }},
      {"groupBarrier", "rank 1", true, [](Side& side) { return [&side] {
                                                          side.bootstrap->groupBarrier({0, 1});
                                                        }; }},
      {"allGather", "rank 1", true,
       [](Side& side) {
         return [&side] {
           char bytes[2] = {};
           side.bootstrap->allGather(bytes, 1);
         };
       }},
      {"broadcast", "rank 1", true,
       [](Side& side) {
         return [&side] {
           char byte;
           side.bootstrap->broadcast(&byte, 1, 1);
         };
       }},
      {"recvMemory", "rank 1", true, [](Side& side) { return [&side] { side.communicator->recvMemory(1).get(); }; }},
      {"connect", "rank 1", true, [](Side& side) { return [&side] { side.connect(Transport::SharedMemory); }; }},
      {"buildSemaphore", "rank 1", true,
       [](Side& side) {
         auto connection = side.connect(Transport::SharedMemory);
         return [&side, connection] { side.communicator->buildSemaphore(connection, 1).get(); };
       }},
      {"SymmetricMemory", "rank 1", true,
       [](Side& side) { return [&side] { SymmetricMemory(*side.communicator, 4096, DeviceType::CPU); }; }},
      {"wait for a signal", "rank 1", true,
       [](Side& side) {
         const auto connection = side.connect(Transport::SharedMemory);
         auto semaphore = std::make_shared<MemoryDevice2DeviceSemaphore>(*side.communicator, connection);
         return [&side, semaphore] {
           auto handle = semaphore->deviceHandle();
           if (!handle.wait()) side.communicator->monitor(DeviceType::CPU)->check();
         };
       }},
      {"all-reduce by packets", "rank 1", true, [](Side& side) { return reduce(side, 100); }},
      {"all-reduce by a pipeline", "rank 1", true, [](Side& side) { return reduce(side, 2'000'000); }},
      {"flush of a port channel over TCP", "the peer at ", false, flushPort},
      {"flush over TCP", "TCP", false,
       [](Side& side) {
         return overTcp(side, [](Connection& connection, const RegisteredMemory& remote) {
           const auto end = std::chrono::steady_clock::now() + 20s;
           std::uint64_t word = 0;
           while (std::chrono::steady_clock::now() < end) {  // until the peer's fate has come
             connection.updateAndSync(remote, 0, &word, word + 1);
             connection.flush(1'000'000);
           }
         });
       }},
  };
  return table;
}

// The peer's process.
void bePeer(const Operation& operation, Fate fate, const UniqueId& id) {
  Side side(1, id);
  const auto call = operation.prepare(side);
  side.bootstrap->barrier();
  if (fate == Fate::Exits) {
    char word;
    side.bootstrap->recv(&word, 1, 0, 99);
    ::_exit(0);  // no destructor says goodbye
  }
  while (true) ::pause();
}

void meetFate(const Operation& operation, Fate fate) {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const test::ChildProcess peer([&] { bePeer(operation, fate, id); });
  {
    Side side(0, id);
    const auto call = operation.prepare(side);
    side.bootstrap->barrier();
    side.bootstrap->setTimeout(1s);
    char word = 0;
    if (fate == Fate::Exits) side.bootstrap->send(&word, 1, 1, 99);
    if (fate == Fate::Killed) peer.kill(SIGKILL);
    if (fate == Fate::Stopped) peer.stop();
    const auto start = std::chrono::steady_clock::now();
    try {
      call();
      FAIL_CHECK("it returned");
    } catch (const Error& error) {
      const std::string text = error.what();
      CAPTURE(text);
      const bool isTimeout = error.getErrorCode() == ErrorCode::Timeout;
      const bool isRemote = error.getErrorCode() == ErrorCode::RemoteError;
      if (fate == Fate::Absent) CHECK(isTimeout);
      if (fate == Fate::Exits || fate == Fate::Killed) CHECK(isRemote);
      CHECK((isTimeout || isRemote));
      CHECK((text.find(operation.names) != std::string::npos || text.find("rank 1") != std::string::npos));
      if (isTimeout) CHECK(text.find_first_of("0123456789") != std::string::npos);
    }
    CHECK(test::secondsSince(start) < timeout + slack);
  }
}

}  // namespace

TEST_CASE("every call that waits ends in time when its peer fails it, and the process starts again") {
  meetFate(operations()[0], Fate::Killed);  // opens what a process keeps
  for (const Operation& operation : operations()) {
    for (const Fate fate : {Fate::Absent, Fate::Exits, Fate::Killed, Fate::Stopped}) {
      if (fate == Fate::Absent && !operation.needsPeer) continue;
      INFO(operation.name << ", of a peer that " << fateNames[static_cast<int>(fate)]);
      const std::size_t descriptors = test::openDescriptors();
      const std::size_t threads = test::liveThreads();
      meetFate(operation, fate);
      CHECK(test::openDescriptors() == descriptors);
      CHECK(test::threadsReturnTo(threads));
    }
  }
}
