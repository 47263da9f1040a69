// mscclpp-verbs: times writes over verbs between two ranks the way perftest does. bench/verbs.py compares the two.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/launch/process_group.hpp"
#include "mscclpp/host/transport/ib_devices.hpp"
#include "tools/command_line/command_line.hpp"

namespace {

using namespace mscclpp;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string test = "write_lat";
  std::size_t bytes = 8;
  int iterations = 1000;
  int maxInFlight = 128;  // perftest's default
  int queuePairs = 1;
};

/// A rank: a buffer that the peer writes, a buffer to write from, and a counter that the peer signals.
struct BenchmarkRank {
  BenchmarkRank(ProcessGroup& group, const Options& options, EndpointConfig::Ib::Mode mode)
      : bootstrap(group.connect()),
        communicator(bootstrap),
        transport(static_cast<Transport>(static_cast<int>(Transport::IB0) + group.rank() % getIBDeviceCount())),
        source(options.bytes + 8),
        target(options.bytes + 8) {
    const int peer = 1 - group.rank();
    EndpointConfig config(transport, DeviceType::CPU);
    config.ib.mode = mode;
    config.ib.queuePairs = options.queuePairs;
    // Only as deep as the test needs, like perftest's queues: a short queue stays in the caches.
    if (options.test != "write_bw") config.maxWriteQueueSize = 8;
    connection = communicator.connect(config, peer).get();
    localMemory = communicator.registerMemory(source.data(), source.size(), transport);
    recvBuffer = communicator.registerMemory(target.data(), target.size(), transport);
    counter = communicator.registerMemory(&word, sizeof(word), transport);
    communicator.sendMemory(recvBuffer, peer);
    communicator.sendMemory(counter, peer);
    remoteMemory = communicator.recvMemory(peer).get();
    remoteCounter = communicator.recvMemory(peer).get();
  }
  ~BenchmarkRank() {
    try {
      bootstrap->barrier();
    } catch (const BaseError&) {  // the peer has failed and reports it itself
    }
  }

  std::shared_ptr<TcpBootstrap> bootstrap;
  Communicator communicator;
  Transport transport;
  std::vector<char> source;
  std::vector<char> target;
  alignas(8) std::uint64_t word = 0;
  Connection connection;
  RegisteredMemory localMemory, recvBuffer, counter, remoteMemory, remoteCounter;
};

template <typename Condition>
void spinUntil(Condition condition) {
  const auto end = Clock::now() + std::chrono::seconds(60);
  for (std::uint64_t polls = 1; !condition(); ++polls) {
    // A kernel thread that does the driver's work may be waiting for this CPU.
    if (polls % 1024 == 0) std::this_thread::yield();
    if (polls % 4096 == 0 && Clock::now() > end) throw std::runtime_error("the peer does not respond");
  }
}

/// Median over the iterations of half a round trip, in us. `send(i)` sends message i, `arrived(i)` returns whether the
/// peer's has arrived. As in perftest, each message's completion is polled before the next is sent.
template <typename Send, typename Arrived>
double pingPong(BenchmarkRank& self, const Options& options, int rank, Send send, Arrived arrived) {
  std::vector<double> times;
  const auto total = static_cast<std::uint64_t>(options.iterations);
  auto last = Clock::now();
  for (std::uint64_t i = 1; i <= total; ++i) {
    if (rank == 1) spinUntil([&] { return arrived(i); });
    send(i);
    spinUntil([&] { return self.connection.completed() == self.connection.issued(); });
    if (rank == 0) {
      spinUntil([&] { return arrived(i); });
      const auto now = Clock::now();
      times.push_back(std::chrono::duration<double, std::micro>(now - last).count() / 2);
      last = now;
    }
  }
  if (times.empty()) return 0;
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double writeLatency(BenchmarkRank& self, const Options& options, int rank) {
  auto& lastByte = *reinterpret_cast<unsigned char*>(self.target.data() + options.bytes - 1);
  return pingPong(
      self, options, rank,
      [&](std::uint64_t i) {
        self.source[options.bytes - 1] = static_cast<char>(i);
        self.connection.write(self.remoteMemory, 0, self.localMemory, 0, options.bytes);
      },
      [&](std::uint64_t i) {
        return std::atomic_ref(lastByte).load(std::memory_order_acquire) == static_cast<unsigned char>(i);
      });
}

double signalLatency(BenchmarkRank& self, const Options& options, int rank) {
  std::uint64_t sent = 0;
  return pingPong(
      self, options, rank, [&](std::uint64_t i) { self.connection.updateAndSync(self.remoteCounter, 0, &sent, i); },
      [&](std::uint64_t i) { return std::atomic_ref(self.word).load(std::memory_order_acquire) >= i; });
}

/// In MB/s (10^6 bytes): one side writes, with at most `maxInFlight` writes outstanding.
double writeBandwidth(BenchmarkRank& self, const Options& options, int rank) {
  if (rank == 1) return 0;
  const auto start = Clock::now();
  for (int i = 0; i < options.iterations; ++i) {
    self.connection.write(self.remoteMemory, 0, self.localMemory, 0, options.bytes);
    const auto most = static_cast<std::uint64_t>(options.maxInFlight);
    if (i % 16 == 15) spinUntil([&] { return self.connection.issued() - self.connection.completed() < most; });
  }
  self.connection.flush(60000000);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return static_cast<double>(options.bytes) * options.iterations / seconds / 1e6;
}

/// Pins each rank to its own CPU, since both spin. Threads that are started later inherit the affinity.
void pinToCpu(int rank) {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  CPU_SET(static_cast<std::size_t>(rank), &processors);
  // Nothing to choose on a machine with one CPU.
  static_cast<void>(::sched_setaffinity(0, sizeof(processors), &processors));
}

void runRank(ProcessGroup& group, const Options& options) {
  const bool immediate = options.test == "immediate_lat";
  pinToCpu(group.rank());
  BenchmarkRank self(group, options,
                     immediate ? EndpointConfig::Ib::Mode::HostNoAtomic : EndpointConfig::Ib::Mode::Host);
  self.bootstrap->barrier();
  double value = 0;
  if (options.test == "write_bw") {
    value = writeBandwidth(self, options, group.rank());
  } else if (options.test == "write_lat") {
    value = writeLatency(self, options, group.rank());
  } else {
    value = signalLatency(self, options, group.rank());
  }
  if (group.rank() == 0) {
    fmt::print(R"({{"test": "{}", "bytes": {}, "value": {:.2f}}})"
               "\n",
               options.test, options.bytes, value);
  }
}

}  // namespace

int main(int argc, char** argv) {
  cli::CommandLine commandLine(
      "Times writes and signals between two ranks over verbs: us for *_lat, MB/s for write_bw.");
  Options options;
  commandLine.add("test", options.test, "the measurement")
      .oneOf({"write_lat", "write_bw", "atomic_lat", "immediate_lat"});
  commandLine.add("-s,--bytes", options.bytes, "bytes per write").range(1, 1 << 30);
  commandLine.add("-n,--iterations", options.iterations, "messages").range(1, 1 << 30);
  commandLine.add("-t,--in-flight", options.maxInFlight, "maximum number of outstanding writes").range(1, 1 << 14);
  commandLine.add("-q,--queue-pairs", options.queuePairs, "queue pairs of the connection").range(1, 16);
  if (const auto exitCode = commandLine.parse(argc, argv)) return *exitCode;
  try {
    return runRanks(2, {argv, argv + argc}, [&](ProcessGroup& group) { runRank(group, options); });
  } catch (const std::exception& error) {
    fmt::print(stderr, "mscclpp-verbs: {}\n", error.what());
    return 1;
  }
}
