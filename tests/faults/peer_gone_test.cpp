// A table: each call that waits for a peer, and each way in which the peer may fail it. The call ends in time, with an
// error that names the peer and the time; then this process destroys everything, holds no more than before, and starts again.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "fate.hpp"
#include "host/process_resources.hpp"
#include "host/ranks.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/host_buffer.hpp"
#include "mscclpp/host/host_semaphore.hpp"
#include "mscclpp/host/memory_semaphore.hpp"
#include "mscclpp/host/nvls.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "mscclpp/host/proxy_service.hpp"
#include "mscclpp/host/symmetric_memory.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "mscclpp/sync/team_barrier.hpp"
#include "stalls.hpp"

using namespace mscclpp;
using namespace mscclpp::faults;
using namespace std::chrono_literals;

namespace {

constexpr double timeout = 1;  // seconds, of every call that is tried; what comes before has the usual 30
constexpr double slack = 1;    // beyond it, not counting what the machine adds

// Before the library reads them.
[[maybe_unused]] const bool hasTimeouts = [] {
  ::setenv("MSCCLPP_WAIT_TIMEOUT", "1", 1);
  ::setenv("MSCCLPP_BOOTSTRAP_TIMEOUT", "1", 1);
  return true;
}();

struct Side {
  Side(int ownRank, const UniqueId& id) : rank(ownRank), bootstrap(std::make_shared<TcpBootstrap>(ownRank, 2)) {
    bootstrap->initialize(id, 30);
    bootstrap->setTimeout(30s);
    communicator = std::make_shared<Communicator>(bootstrap);
  }
  int peer() const { return 1 - rank; }
  Connection connect(Transport transport) {
    return communicator->connect(EndpointConfig(transport, DeviceType::CPU), peer()).get();
  }
  /// Throws why a wait of a kernel gave up.
  void require(bool passed) {
    if (!passed) communicator->monitor(DeviceType::CPU)->check();
  }

  int rank;
  std::shared_ptr<TcpBootstrap> bootstrap;
  std::shared_ptr<Communicator> communicator;
};

using Call = std::function<void()>;
/// What both sides do first; the result is the call that waits, for rank 0 to make.
using Prepare = std::function<Call(Side&)>;

struct Operation {
  const char* name;
  Prepare prepare;
  /// What does not stop the call: the peer's library serves it without the program, or it does not use the network.
  std::vector<Fate> harmless = {};
  const char* names = "rank 1";  ///< how an error may name the peer
};

// For calls that the peer's library serves: until its fate has come.
void repeat(const Call& call) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (std::chrono::steady_clock::now() < end) call();
}

Call reduce(Side& side, std::size_t count) {
  auto collectives = std::make_shared<Collectives>(side.communicator, DeviceType::CPU);
  auto values = std::make_shared<std::vector<float>>(count, 1.0F);
  return [=] {
    collectives->allReduce(values->data(), values->data(), count, DataType::FLOAT32, ReduceOp::SUM);
    collectives->check();
    if (values->back() != 2) throw std::runtime_error("a wrong sum");
  };
}

/// A connection over TCP, and memory at both ends.
struct TcpLink {
  explicit TcpLink(Side& side)
      : connection(side.connect(Transport::Ethernet)),
        local(side.communicator->registerMemory(data.data(), data.size(), Transport::Ethernet)) {
    side.communicator->sendMemory(local, side.peer());
    remote = side.communicator->recvMemory(side.peer()).get();
  }
  Connection connection;
  std::vector<char> data = std::vector<char>(1 << 20);
  RegisteredMemory local;
  RegisteredMemory remote;
};

const std::vector<Operation>& operations() {
  static const std::vector<Operation> table = {
      {"recv",
       [](Side& side) -> Call {
         return [&side] {
           char byte;
           side.bootstrap->recv(&byte, 1, 1, 3);
         };
       }},
      {"send, when the outbox is full",
       [](Side& side) -> Call {
         return [&side, block = std::vector<char>(8 << 20)]() mutable {
           while (true) side.bootstrap->send(block.data(), static_cast<int>(block.size()), 1, 3);
         };
       },
       {Fate::StaysAway}},
      {"barrier", [](Side& side) -> Call { return [&side] { side.bootstrap->barrier(); }; }},
      {"groupBarrier", [](Side& side) -> Call { return [&side] {
                                                  side.bootstrap->groupBarrier({0, 1});
                                                }; }},
      {"allGather",
       [](Side& side) -> Call {
         return [&side] {
           char bytes[2] = {};
           side.bootstrap->allGather(bytes, 1);
         };
       }},
      {"broadcast",
       [](Side& side) -> Call {
         return [&side] {
           char byte;
           side.bootstrap->broadcast(&byte, 1, 1);
         };
       }},
      {"recvMemory", [](Side& side) -> Call { return [&side] { side.communicator->recvMemory(1).get(); }; }},
      {"recvMemory, when the memory is to be mapped",
       [](Side& side) -> Call {
         const auto buffer = std::make_shared<HostBuffer>(4096);
         const auto local = side.communicator->registerMemory(buffer->data(), 4096, Transport::SharedMemory);
         side.communicator->sendMemory(local, side.peer());
         return [buffer, local, remote = side.communicator->recvMemory(side.peer())] { remote.get(); };
       },
       {Fate::StaysAway, Fate::IsCutOff, Fate::IsReset}},
      {"connect", [](Side& side) -> Call { return [&side] { side.connect(Transport::SharedMemory); }; }},
      {"connect over TCP, when the peer is to be dialled",
       [](Side& side) -> Call {
         const EndpointConfig overTcp(Transport::Ethernet, DeviceType::CPU);
         return [connection = side.communicator->connect(overTcp, side.peer())] { connection.get(); };
       },
       {Fate::StaysAway, Fate::IsReset}},
      {"buildSemaphore",
       [](Side& side) -> Call {
         const auto connection = side.connect(Transport::SharedMemory);
         return [&side, connection] { side.communicator->buildSemaphore(connection, 1).get(); };
       }},
      {"SymmetricMemory",
       [](Side& side) -> Call { return [&side] { SymmetricMemory(*side.communicator, 4096, DeviceType::CPU); }; }},
      {"connectNvlsCollective",
       [](Side& side) -> Call {
         return [&side] { connectNvlsCollective(side.communicator, {0, 1}, 4096, DeviceType::CPU); };
       }},
      {"bindAllocatedMemory",
       [](Side& side) -> Call {
         const auto connection = connectNvlsCollective(side.communicator, {0, 1}, 4096, DeviceType::CPU);
         const auto buffer = std::make_shared<HostBuffer>(4096);
         return [connection, buffer] { connection->bindAllocatedMemory(buffer->data(), 4096); };
       }},
      {"wait of a kernel for a signal",
       [](Side& side) -> Call {
         const auto connection = side.connect(Transport::SharedMemory);
         const auto semaphore = std::make_shared<MemoryDevice2DeviceSemaphore>(*side.communicator, connection);
         return [&side, semaphore] { side.require(semaphore->deviceHandle().wait()); };
       }},
      {"wait of a host for a signal",
       [](Side& side) -> Call {
         const auto connection = side.connect(Transport::SharedMemory);
         const auto semaphore = std::make_shared<Host2HostSemaphore>(*side.communicator, connection);
         return [semaphore] { semaphore->wait(std::numeric_limits<std::int64_t>::max()); };
       }},
      {"team barrier",
       [](Side& side) -> Call {
         const auto memory = std::make_shared<SymmetricMemory>(*side.communicator, 4096, DeviceType::CPU);
         return [&side, memory] {
           std::uint64_t epoch = 0;
           const auto nanoseconds = static_cast<std::uint64_t>(timeout * 1e9);
           BoundedWait wait(side.communicator->monitor(DeviceType::CPU)->deviceControl(), nanoseconds);
           TeamBarrier<> barrier{Team<>(side.rank, 2), memory->window(), &epoch};
           side.require(barrier.sync(cpu::SerialGrid{}.block(), wait));
         };
       }},
      {"barrier of a switch channel",  // a sum, which does not say who is missing
       [](Side& side) -> Call {
         const auto connection = connectNvlsCollective(side.communicator, {0, 1}, 4096, DeviceType::CPU);
         const auto buffer = std::make_shared<HostBuffer>(4096);
         const auto channel = connection->bindAllocatedMemory(buffer->data(), 4096);
         return [&side, buffer, channel] {
           auto handle = channel.deviceHandle();
           handle.signal();
           side.require(handle.wait());
         };
       },
       {},
       "rank 0, block 0, waited for a signal"},
      {"all-reduce by packets", [](Side& side) { return reduce(side, 100); }},
      {"all-reduce by a pipeline", [](Side& side) { return reduce(side, 2'000'000); }},
      // The proxy meets the failure first, or the bootstrap does, which knows the rank.
      {"flush of a port channel over TCP",
       [](Side& side) -> Call {
         const auto link = std::make_shared<TcpLink>(side);
         const auto service =
             std::make_shared<ProxyService>(ProxyServiceOptions{.thread = {.device = DeviceType::CPU}});
         const auto semaphore = service->buildAndAddSemaphore(*side.communicator, link->connection);
         const auto dst = service->addMemory(link->remote);
         const auto channel = service->portChannel(semaphore, dst, service->addMemory(link->local));
         if (side.rank == 0) service->startProxy();
         return [&side, link, service, channel] {
           repeat([&, handle = channel.deviceHandle()]() mutable {
             handle.put(0, 0, 64);
             if (handle.flush()) return;
             service->check();
             side.require(false);
           });
         };
       },
       {Fate::StaysAway},
       "the peer at "},
      {"flush over TCP",
       [](Side& side) -> Call {
         return [link = std::make_shared<TcpLink>(side)] {
           repeat([&, word = std::uint64_t{0}]() mutable {
             link->connection.updateAndSync(link->remote, 0, &word, word + 1);
             link->connection.flush(1'000'000);
           });
         };
       },
       {Fate::StaysAway},
       "TCP"},
      {"write over TCP",
       [](Side& side) -> Call {
         return [link = std::make_shared<TcpLink>(side)] {
           repeat([&] { link->connection.write(link->remote, 0, link->local, 0, link->local.size()); });
         };
       },
       {Fate::StaysAway},
       "TCP"},
  };
  return table;
}

/// What does not hold is added up, since rows are tried in processes of their own.
class Complaints {
 public:
  explicit Complaints(std::string context) : context_(std::move(context)) {}
  void unless(bool condition, const std::string& what) {
    if (!condition) text_ += context_ + ": " + what + "\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::string context_;
  std::string text_;
};

// Returns how late the call was, in seconds beyond what is allowed; negative if it was in time.
double judge(Complaints& complaints, Fate fate, const std::string& names, const Call& call) {
  const Stalls stalls;
  const auto start = std::chrono::steady_clock::now();
  try {
    call();
    complaints.unless(false, "it returned");
  } catch (const Error& error) {
    const std::string text = error.what();
    const bool isTimeout = error.getErrorCode() == ErrorCode::Timeout;
    const bool isRemote = error.getErrorCode() == ErrorCode::RemoteError;
    const bool isOver = fate == Fate::Exits || fate == Fate::IsKilled || fate == Fate::IsReset;
    complaints.unless(isOver ? isRemote : isTimeout || (isRemote && fate != Fate::StaysAway), "wrong code: " + text);
    complaints.unless(text.find("rank 1") != std::string::npos || text.find(names) != std::string::npos,
                      "it does not say who: " + text);
    static const std::regex time("[0-9] ?(s|ms|us)\\b");
    complaints.unless(!isTimeout || std::regex_search(text, time), "it does not say how long: " + text);
  }
  return test::secondsSince(start) - stalls.seconds() - (timeout + slack);
}

// A call that waits too long by itself does so each time; a machine that does not go on for a second does not.
void inTime(Complaints& complaints, const std::function<double()>& attempt) {
  double late = 0;
  for (int i = 0; i < 3; ++i) {
    late = attempt();
    if (late <= 0) return;
  }
  complaints.unless(false, "it was " + std::to_string(late) + " s late, three times in a row");
}

// Everything is new: two ranks meet, and sum.
void startAgain() {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const auto body = [&](int rank) {
    Side side(rank, id);
    reduce(side, 1000)();
    side.bootstrap->barrier();
  };
  test::ChildProcess partner([&] { body(1); });
  body(0);
  if (const std::string outcome = partner.wait(); !outcome.empty()) throw std::runtime_error(outcome);
}

double meetFate(Complaints& complaints, const Operation& operation, Fate fate) {
  double late = 0;
  const UniqueId id = TcpBootstrap::createUniqueId();
  Peer peer([&] {
    static std::unique_ptr<Side> side;  // until the process ends
    static Call call;
    side = std::make_unique<Side>(1, id);
    call = operation.prepare(*side);
    side->bootstrap->barrier();
  });
  {
    Side side(0, id);
    const Call call = operation.prepare(side);
    side.bootstrap->barrier();
    side.bootstrap->setTimeout(1s);
    peer.suffer(fate);
    late = judge(complaints, fate, operation.names, call);
  }
  startAgain();
  return late;
}

void tryRow(const Operation& operation) {
  Complaints ignored("");
  meetFate(ignored, operation, Fate::IsKilled);  // opens what a process keeps
  std::string text;
  for (const Fate fate : fates) {
    if (std::find(operation.harmless.begin(), operation.harmless.end(), fate) != operation.harmless.end()) continue;
    Complaints complaints(std::string(operation.name) + ", of a peer that " + nameOf(fate));
    const std::size_t descriptors = test::openDescriptors();
    const std::size_t threads = test::liveThreads();
    inTime(complaints, [&] { return meetFate(complaints, operation, fate); });
    complaints.unless(test::openDescriptors() == descriptors, "descriptors are left open");
    complaints.unless(test::threadsReturnTo(threads), "threads are left");
    text += complaints.text();
  }
  if (!text.empty()) throw std::runtime_error(text);
}

}  // namespace

TEST_CASE("every call that waits ends in time when its peer fails it, and the process starts again") {
  constexpr std::size_t atOnce = 8;  // nearly all of their time is waiting
  const auto& table = operations();
  for (std::size_t i = 0; i < table.size(); i += atOnce) {
    std::vector<test::ChildProcess> rows;
    for (std::size_t row = i; row < std::min(i + atOnce, table.size()); ++row) {
      rows.emplace_back([&, row] { tryRow(table[row]); });
    }
    for (std::size_t row = 0; row < rows.size(); ++row) {
      CAPTURE(std::string(table[i + row].name));
      CHECK(rows[row].wait() == "");
    }
  }
}

// Rank 2 of three never comes, and the fate of the other comes over it in the middle.
TEST_CASE("the ranks' meeting ends in time, and the process starts again") {
  for (const int waiting : {0, 1}) {
    std::vector<test::ChildProcess> rows;
    for (const Fate fate : fates) {
      rows.emplace_back([=] {
        Complaints complaints("initialize of rank " + std::to_string(waiting) + ", whose peer " + nameOf(fate));
        inTime(complaints, [&] {
          const UniqueId id = TcpBootstrap::createUniqueId();
          Peer peer([&] {
            if (fate == Fate::StaysAway) return;
            static TcpBootstrap bootstrap(1 - waiting, 3);
            try {
              bootstrap.initialize(id, 30);
            } catch (const Error&) {  // that the other has given up
            }
          });
          TcpBootstrap bootstrap(waiting, 3);
          std::thread thread([&] {
            std::this_thread::sleep_for(300ms);
            peer.suffer(fate);
          });
          const double late = judge(complaints, Fate::IsStopped, waiting == 0 ? "missing" : "rank 0",
                                    [&] { bootstrap.initialize(id, 1); });
          thread.join();
          return late;
        });
        startAgain();
        if (!complaints.text().empty()) throw std::runtime_error(complaints.text());
      });
    }
    for (auto& row : rows) CHECK(row.wait() == "");
  }
}
