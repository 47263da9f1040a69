// A table of each call that waits for a peer and each fault of the peer. The call ends in time, with an error that
// names the peer and the duration; then this process destroys everything, has leaked nothing, and initializes again.
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

#include "fault.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/channel/host_semaphore.hpp"
#include "mscclpp/host/channel/memory_semaphore.hpp"
#include "mscclpp/host/channel/nvls.hpp"
#include "mscclpp/host/communicator/registered_buffer.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "mscclpp/host/proxy/port_channel.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "mscclpp/sync/team_barrier.hpp"
#include "scheduling_delay.hpp"
#include "tests/host/process_resources.hpp"
#include "tests/host/ranks.hpp"
#include "tests/host/tcp_link.hpp"

using namespace mscclpp;
using namespace mscclpp::faults;
using namespace std::chrono_literals;

namespace {

constexpr double timeout = 1;  // seconds, for each tested call; the preparation has the default of 30
constexpr double slack = 1;    // seconds beyond it, not counting scheduling delays

// Set before the library reads them.
[[maybe_unused]] const bool timeoutsSet = [] {
  ::setenv("MSCCLPP_WAIT_TIMEOUT", "1", 1);
  ::setenv("MSCCLPP_BOOTSTRAP_TIMEOUT", "1", 1);
  return true;
}();

struct RankContext {
  RankContext(int ownRank, const UniqueId& id) : rank(ownRank), bootstrap(std::make_shared<TcpBootstrap>(ownRank, 2)) {
    bootstrap->initialize(id, 30);
    bootstrap->setTimeout(30s);
    communicator = std::make_shared<Communicator>(bootstrap);
  }
  int peer() const { return 1 - rank; }
  Connection connect(Transport transport) {
    return communicator->connect(EndpointConfig(transport, DeviceType::CPU), peer()).get();
  }
  /// Throws the reason for which a kernel's wait failed.
  void require(bool passed) {
    if (!passed) communicator->monitor(DeviceType::CPU)->check();
  }

  int rank;
  std::shared_ptr<TcpBootstrap> bootstrap;
  std::shared_ptr<Communicator> communicator;
};

using Call = std::function<void()>;
/// The preparation on both sides. Returns the blocking call, which rank 0 makes.
using Prepare = std::function<Call(RankContext&)>;

struct Operation {
  const char* name;
  Prepare prepare;
  /// Faults that do not fail the call: the peer's library serves it without the program, or it does not use the
  /// network.
  std::vector<Fault> toleratedFaults = {};
  const char* expectedName = "rank 1";  ///< how an error may name the peer
};

// For calls that the peer's library serves: repeat until the fault has taken effect.
void repeatUntilThrown(const Call& call) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (std::chrono::steady_clock::now() < end) call();
}

Call reduce(RankContext& side, std::size_t count) {
  auto collectives = std::make_shared<Collectives>(side.communicator, DeviceType::CPU);
  auto values = std::make_shared<std::vector<float>>(count, 1.0F);
  return [=] {
    collectives->allReduce(values->data(), values->data(), count, DataType::FLOAT32, ReduceOp::SUM);
    collectives->check();
    if (values->back() != 2) throw std::runtime_error("a wrong sum");
  };
}

std::shared_ptr<test::TcpLink> makeLink(RankContext& side) {
  return std::make_shared<test::TcpLink>(*side.communicator, side.peer(), 1 << 20);
}

const std::vector<Operation>& operations() {
  static const std::vector<Operation> table = {
      {"recv",
       [](RankContext& side) -> Call {
         return [&side] {
           char byte;
           side.bootstrap->recv(&byte, 1, 1, 3);
         };
       }},
      {"send, when the outbox is full",
       [](RankContext& side) -> Call {
         return [&side, block = std::vector<char>(8 << 20)]() mutable {
           while (true) side.bootstrap->send(block.data(), static_cast<int>(block.size()), 1, 3);
         };
       },
       {Fault::Absent}},
      {"barrier", [](RankContext& side) -> Call { return [&side] { side.bootstrap->barrier(); }; }},
      {"groupBarrier", [](RankContext& side) -> Call { return [&side] {
                                                         side.bootstrap->groupBarrier({0, 1});
                                                       }; }},
      {"allGather",
       [](RankContext& side) -> Call {
         return [&side] {
           char bytes[2] = {};
           side.bootstrap->allGather(bytes, 1);
         };
       }},
      {"broadcast",
       [](RankContext& side) -> Call {
         return [&side] {
           char byte;
           side.bootstrap->broadcast(&byte, 1, 1);
         };
       }},
      {"recvMemory", [](RankContext& side) -> Call { return [&side] { side.communicator->recvMemory(1).get(); }; }},
      {"recvMemory, when the memory is to be mapped",
       [](RankContext& side) -> Call {
         const auto buffer = std::make_shared<HostBuffer>(4096);
         const auto local = side.communicator->registerMemory(buffer->data(), 4096, Transport::SharedMemory);
         side.communicator->sendMemory(local, side.peer());
         return [buffer, local, remote = side.communicator->recvMemory(side.peer())] { remote.get(); };
       },
       {Fault::Absent, Fault::Partition, Fault::Reset}},
      {"connect", [](RankContext& side) -> Call { return [&side] { side.connect(Transport::SharedMemory); }; }},
      {"connect over TCP, when the peer is to be dialled",
       [](RankContext& side) -> Call {
         const EndpointConfig overTcp(Transport::Ethernet, DeviceType::CPU);
         return [connection = side.communicator->connect(overTcp, side.peer())] { connection.get(); };
       },
       {Fault::Absent, Fault::Reset}},
      {"buildSemaphore",
       [](RankContext& side) -> Call {
         const auto connection = side.connect(Transport::SharedMemory);
         return [&side, connection] { side.communicator->buildSemaphore(connection, 1).get(); };
       }},
      {"SymmetricMemory",
       [](RankContext& side) -> Call {
         return [&side] { SymmetricMemory(*side.communicator, 4096, DeviceType::CPU); };
       }},
      {"RegisteredBuffer",
       [](RankContext& side) -> Call {
         const auto buffer = std::make_shared<HostBuffer>(4096);
         return [&side, buffer] { RegisteredBuffer(*side.communicator, buffer->data(), 4096); };
       }},
      {"connectNvlsCollective",
       [](RankContext& side) -> Call {
         return [&side] { connectNvlsCollectiveOn(DeviceType::CPU, side.communicator, {0, 1}, 4096); };
       }},
      {"NvlsConnection::bindMemory",
       [](RankContext& side) -> Call {
         const auto connection = connectNvlsCollectiveOn(DeviceType::CPU, side.communicator, {0, 1}, 4096);
         const auto buffer = std::make_shared<HostBuffer>(4096);
         return [connection, buffer] { connection->bindMemory(buffer->data(), 4096); };
       }},
      {"wait of a kernel for a signal",
       [](RankContext& side) -> Call {
         const auto connection = side.connect(Transport::SharedMemory);
         const auto semaphore = std::make_shared<MemoryDevice2DeviceSemaphore>(*side.communicator, connection);
         return [&side, semaphore] { side.require(semaphore->deviceHandle().wait()); };
       }},
      {"wait of a host for a signal",
       [](RankContext& side) -> Call {
         const auto connection = side.connect(Transport::SharedMemory);
         const auto semaphore = std::make_shared<Host2HostSemaphore>(*side.communicator, connection);
         return [semaphore] { semaphore->wait(std::numeric_limits<std::int64_t>::max()); };
       }},
      {"team barrier",
       [](RankContext& side) -> Call {
         const auto memory = std::make_shared<SymmetricMemory>(*side.communicator, 4096, DeviceType::CPU);
         return [&side, memory] {
           std::uint64_t epoch = 0;
           const auto nanoseconds = static_cast<std::uint64_t>(timeout * 1e9);
           const auto monitor = side.communicator->monitor(DeviceType::CPU);
           monitor->setTeamIsJob();
           BoundedWait wait(monitor->deviceControl(), nanoseconds);
           TeamBarrier<> barrier{Team<>(side.rank, 2), memory->window(), &epoch};
           side.require(barrier.sync(cpu::SerialGrid{}.block(), wait));
         };
       }},
      {"barrier of a switch channel",  // a sum, which does not tell which rank is missing
       [](RankContext& side) -> Call {
         const auto connection = connectNvlsCollectiveOn(DeviceType::CPU, side.communicator, {0, 1}, 4096);
         const auto buffer = std::make_shared<HostBuffer>(4096);
         const auto channel = connection->bindMemory(buffer->data(), 4096);
         return [&side, buffer, channel] {
           auto handle = channel.deviceHandle();
           handle.signal();
           side.require(handle.wait());
         };
       },
       {Fault::Unwind},
       "rank 0, block 0, waited for a signal"},
      {"all-reduce by packets", [](RankContext& side) { return reduce(side, 100); }},
      {"all-reduce by a pipeline", [](RankContext& side) { return reduce(side, 2'000'000); }},
      // Either the proxy detects the failure first, or the bootstrap, which knows the rank.
      {"flush of a port channel over TCP",
       [](RankContext& side) -> Call {
         const auto link = makeLink(side);
         const auto service =
             std::make_shared<ProxyService>(ProxyServiceOptions{.thread = {.device = DeviceType::CPU}});
         const auto semaphore = service->buildAndAddSemaphore(*side.communicator, link->connection);
         const auto dst = service->addMemory(link->remote);
         const auto channel = service->portChannel(semaphore, dst, service->addMemory(link->local));
         if (side.rank == 0) service->startProxy();
         return [&side, link, service, channel] {
           repeatUntilThrown([&, handle = channel.deviceHandle()]() mutable {
             handle.put(0, 0, 64);
             if (handle.flush()) return;
             service->check();
             side.require(false);
           });
         };
       },
       {Fault::Absent}},
      {"flush over TCP",
       [](RankContext& side) -> Call {
         return [link = makeLink(side)] {
           repeatUntilThrown([&] {
             link->update();
             link->connection.flush(1'000'000);
           });
         };
       },
       {Fault::Absent}},
      {"write over TCP",
       [](RankContext& side) -> Call {
         return [link = makeLink(side)] {
           repeatUntilThrown([&] { link->connection.write(link->remote, 0, link->local, 0, link->local.size()); });
         };
       },
       {Fault::Absent}},
  };
  return table;
}

/// Collects failed checks as text, since rows run in separate processes.
class FailureLog {
 public:
  explicit FailureLog(std::string context) : context_(std::move(context)) {}
  void expect(bool condition, const std::string& what) {
    if (!condition) text_ += context_ + ": " + what + "\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::string context_;
  std::string text_;
};

// Returns how late the call was, in seconds beyond what is allowed; negative if it was in time.
double checkError(FailureLog& failures, Fault fault, const std::string& expectedName, const Call& call) {
  const SchedulingDelay delay;
  const auto start = std::chrono::steady_clock::now();
  try {
    call();
    failures.expect(false, "it returned");
  } catch (const Error& error) {
    const std::string text = error.what();
    const bool isTimeout = error.getErrorCode() == ErrorCode::Timeout;
    const bool isRemote = error.getErrorCode() == ErrorCode::RemoteError;
    const bool isDead = fault == Fault::Exit || fault == Fault::Kill || fault == Fault::Unwind || fault == Fault::Reset;
    failures.expect(isDead ? isRemote : isTimeout || (isRemote && fault != Fault::Absent), "wrong code: " + text);
    failures.expect(text.find("rank 1") != std::string::npos || text.find(expectedName) != std::string::npos,
                    "it does not say who: " + text);
    static const std::regex time("[0-9] ?(s|ms|us)\\b");
    failures.expect(!isTimeout || std::regex_search(text, time), "it does not say how long: " + text);
  }
  return test::secondsSince(start) - delay.seconds() - (timeout + slack);
}

// A call with too long a timeout is late each time; one delayed by a busy machine is not.
void expectInTime(FailureLog& failures, const std::function<double()>& attempt) {
  double late = 0;
  for (int i = 0; i < 3; ++i) {
    late = attempt();
    if (late <= 0) return;
  }
  failures.expect(false, "it was " + std::to_string(late) + " s late, three times in a row");
}

// Creates everything anew: two ranks connect and compute a sum.
void reinitialize() {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const auto body = [&](int rank) {
    RankContext side(rank, id);
    reduce(side, 1000)();
    side.bootstrap->barrier();
  };
  test::ChildProcess partner([&] { body(1); });
  body(0);
  if (const std::string outcome = partner.wait(); !outcome.empty()) throw std::runtime_error(outcome);
}

double runWithFault(FailureLog& failures, const Operation& operation, Fault fault) {
  double late = 0;
  const UniqueId id = TcpBootstrap::createUniqueId();
  // Objects of the peer, kept until its process exits.
  static std::unique_ptr<RankContext> peerSide;
  static Call peerCall;
  FaultyPeer peer(
      [&] {
        peerSide = std::make_unique<RankContext>(1, id);
        peerCall = operation.prepare(*peerSide);
        peerSide->bootstrap->barrier();
      },
      [] {
        peerCall = nullptr;
        peerSide = nullptr;
      });
  {
    RankContext side(0, id);
    const Call call = operation.prepare(side);
    side.bootstrap->barrier();
    side.bootstrap->setTimeout(1s);
    peer.inject(fault);
    late = checkError(failures, fault, operation.expectedName, call);
  }
  reinitialize();
  return late;
}

void testOperation(const Operation& operation) {
  FailureLog ignored("");
  runWithFault(ignored, operation, Fault::Kill);  // warm-up: opens what a process keeps
  std::string text;
  for (const Fault fault : allFaults) {
    if (std::find(operation.toleratedFaults.begin(), operation.toleratedFaults.end(), fault) !=
        operation.toleratedFaults.end())
      continue;
    FailureLog failures(std::string(operation.name) + ", of a peer that " + nameOf(fault));
    const std::size_t descriptors = test::openDescriptors();
    const std::size_t threads = test::liveThreads();
    expectInTime(failures, [&] { return runWithFault(failures, operation, fault); });
    failures.expect(test::openDescriptors() == descriptors, "descriptors are left open");
    failures.expect(test::threadCountReturnsTo(threads), "threads are left");
    text += failures.text();
  }
  if (!text.empty()) throw std::runtime_error(text);
}

}  // namespace

TEST_CASE("every call that waits ends in time when its peer fails, and the process initializes again") {
  constexpr std::size_t atOnce = 8;  // they spend nearly all of their time waiting
  const auto& table = operations();
  for (std::size_t i = 0; i < table.size(); i += atOnce) {
    std::vector<test::ChildProcess> rows;
    for (std::size_t row = i; row < std::min(i + atOnce, table.size()); ++row) {
      rows.emplace_back([&, row] { testOperation(table[row]); });
    }
    for (std::size_t row = 0; row < rows.size(); ++row) {
      CAPTURE(std::string(table[i + row].name));
      CHECK(rows[row].wait() == "");
    }
  }
}

// Rank 2 of three never joins, and the other rank's fault happens during the rendezvous.
TEST_CASE("the rendezvous ends in time, and the process initializes again") {
  for (const int waitingRank : {0, 1}) {
    std::vector<test::ChildProcess> rows;
    for (const Fault fault : allFaults) {
      if (fault == Fault::Unwind) continue;  // initialize does not return before the fault
      rows.emplace_back([=] {
        FailureLog failures("initialize of rank " + std::to_string(waitingRank) + ", whose peer " + nameOf(fault));
        expectInTime(failures, [&] {
          const UniqueId id = TcpBootstrap::createUniqueId();
          FaultyPeer peer([&] {
            if (fault == Fault::Absent) return;
            static TcpBootstrap bootstrap(1 - waitingRank, 3);
            try {
              bootstrap.initialize(id, 30);
            } catch (const Error&) {  // the other rank has timed out
            }
          });
          TcpBootstrap bootstrap(waitingRank, 3);
          std::thread thread([&] {
            std::this_thread::sleep_for(300ms);
            peer.inject(fault);
          });
          const double late = checkError(failures, Fault::Stop, waitingRank == 0 ? "missing" : "rank 0",
                                         [&] { bootstrap.initialize(id, 1); });
          thread.join();
          return late;
        });
        reinitialize();
        if (!failures.text().empty()) throw std::runtime_error(failures.text());
      });
    }
    for (auto& row : rows) CHECK(row.wait() == "");
  }
}
