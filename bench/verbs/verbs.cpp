// mscclpp-verbs: how fast one rank writes to another over verbs, timed as perftest times it. bench/verbs.py compares.
#include <fmt/format.h>
#include <sched.h>

#include <CLI/CLI.hpp>
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

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/ib_devices.hpp"
#include "mscclpp/host/process_group.hpp"

namespace {

using namespace mscclpp;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string test = "write_lat";
  std::size_t bytes = 8;
  int iterations = 1000;
  int underWay = 128;  // perftest's default
  int queuePairs = 1;
};

/// One rank's end: a buffer that the peer writes, one to write from, and a counter that the peer signals.
struct End {
  End(ProcessGroup& group, const Options& options, EndpointConfig::Ib::Mode mode)
      : bootstrap(group.connect()),
        communicator(bootstrap),
        transport(static_cast<Transport>(static_cast<int>(Transport::IB0) + group.rank() % getIBDeviceCount())),
        source(options.bytes + 8),
        target(options.bytes + 8) {
    const int peer = 1 - group.rank();
    EndpointConfig config(transport, DeviceType::CPU);
    config.ib.mode = mode;
    config.ib.queuePairs = options.queuePairs;
    // As deep as the test needs, as perftest's queues are: a short queue stays in the caches.
    if (options.test != "write_bw") config.maxWriteQueueSize = 8;
    connection = communicator.connect(config, peer).get();
    from = communicator.registerMemory(source.data(), source.size(), transport);
    inbox = communicator.registerMemory(target.data(), target.size(), transport);
    counter = communicator.registerMemory(&word, sizeof(word), transport);
    communicator.sendMemory(inbox, peer);
    communicator.sendMemory(counter, peer);
    to = communicator.recvMemory(peer).get();
    toCounter = communicator.recvMemory(peer).get();
  }
  ~End() {
    try {
      bootstrap->barrier();
    } catch (const BaseError&) {  // the peer has failed, and says so itself
    }
  }

  std::shared_ptr<TcpBootstrap> bootstrap;
  Communicator communicator;
  Transport transport;
  std::vector<char> source;
  std::vector<char> target;
  alignas(8) std::uint64_t word = 0;
  Connection connection;
  RegisteredMemory from, inbox, counter, to, toCounter;
};

template <typename Condition>
void spinUntil(Condition condition) {
  const auto end = Clock::now() + std::chrono::seconds(60);
  for (std::uint64_t looks = 1; !condition(); ++looks) {
    // The driver's work may wait as a thread of the kernel for this very processor.
    if (looks % 1024 == 0) std::this_thread::yield();
    if (looks % 4096 == 0 && Clock::now() > end) throw std::runtime_error("the peer does not answer");
  }
}

/// Median over the iterations of half a round trip, in us. `send(i)` sends message i, `came(i)` says whether the peer's
/// has come. As in perftest, the completion of each message is taken before the next.
template <typename Send, typename Came>
double pingPong(End& end, const Options& options, int rank, Send send, Came came) {
  std::vector<double> times;
  const auto total = static_cast<std::uint64_t>(options.iterations);
  auto last = Clock::now();
  for (std::uint64_t i = 1; i <= total; ++i) {
    if (rank == 1) spinUntil([&] { return came(i); });
    send(i);
    spinUntil([&] { return end.connection.completed() == end.connection.issued(); });
    if (rank == 0) {
      spinUntil([&] { return came(i); });
      const auto now = Clock::now();
      times.push_back(std::chrono::duration<double, std::micro>(now - last).count() / 2);
      last = now;
    }
  }
  if (times.empty()) return 0;
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double writeLatency(End& end, const Options& options, int rank) {
  auto& mark = *reinterpret_cast<unsigned char*>(end.target.data() + options.bytes - 1);
  return pingPong(
      end, options, rank,
      [&](std::uint64_t i) {
        end.source[options.bytes - 1] = static_cast<char>(i);
        end.connection.write(end.to, 0, end.from, 0, options.bytes);
      },
      [&](std::uint64_t i) {
        return std::atomic_ref(mark).load(std::memory_order_acquire) == static_cast<unsigned char>(i);
      });
}

double signalLatency(End& end, const Options& options, int rank) {
  std::uint64_t sent = 0;
  return pingPong(
      end, options, rank, [&](std::uint64_t i) { end.connection.updateAndSync(end.toCounter, 0, &sent, i); },
      [&](std::uint64_t i) { return std::atomic_ref(end.word).load(std::memory_order_acquire) >= i; });
}

/// In MB/s (10^6 bytes): one side writes, with at most `underWay` writes not complete.
double writeBandwidth(End& end, const Options& options, int rank) {
  if (rank == 1) return 0;
  const auto start = Clock::now();
  for (int i = 0; i < options.iterations; ++i) {
    end.connection.write(end.to, 0, end.from, 0, options.bytes);
    const auto most = static_cast<std::uint64_t>(options.underWay);
    if (i % 16 == 15) spinUntil([&] { return end.connection.issued() - end.connection.completed() < most; });
  }
  end.connection.flush(60000000);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return static_cast<double>(options.bytes) * options.iterations / seconds / 1e6;
}

/// Ranks that spin must not meet on one processor. Threads that are started later stay there too.
void keepToProcessor(int rank) {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  CPU_SET(static_cast<std::size_t>(rank), &processors);
  // A machine with one processor has nothing to choose.
  static_cast<void>(::sched_setaffinity(0, sizeof(processors), &processors));
}

void runRank(ProcessGroup& group, const Options& options) {
  const bool immediate = options.test == "immediate_lat";
  keepToProcessor(group.rank());
  End end(group, options, immediate ? EndpointConfig::Ib::Mode::HostNoAtomic : EndpointConfig::Ib::Mode::Host);
  end.bootstrap->barrier();
  double value = 0;
  if (options.test == "write_bw") {
    value = writeBandwidth(end, options, group.rank());
  } else if (options.test == "write_lat") {
    value = writeLatency(end, options, group.rank());
  } else {
    value = signalLatency(end, options, group.rank());
  }
  if (group.rank() == 0) {
    fmt::print(R"({{"test": "{}", "bytes": {}, "value": {:.2f}}})"
               "\n",
               options.test, options.bytes, value);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Times writes and signals between two ranks over verbs: us for *_lat, MB/s for write_bw."};
  Options options;
  app.add_option("test", options.test, "what to time")
      ->check(CLI::IsMember({"write_lat", "write_bw", "atomic_lat", "immediate_lat"}));
  app.add_option("-s,--bytes", options.bytes, "bytes of a write")->check(CLI::Range(1, 1 << 30));
  app.add_option("-n,--iterations", options.iterations, "messages")->check(CLI::Range(1, 1 << 30));
  app.add_option("-t,--under-way", options.underWay, "writes that are under way at most")
      ->check(CLI::Range(1, 1 << 14));
  app.add_option("-q,--queue-pairs", options.queuePairs, "queue pairs of the connection")->check(CLI::Range(1, 16));
  CLI11_PARSE(app, argc, argv);
  try {
    return runRanks(2, {argv, argv + argc}, [&](ProcessGroup& group) { runRank(group, options); });
  } catch (const std::exception& error) {
    fmt::print(stderr, "mscclpp-verbs: {}\n", error.what());
    return 1;
  }
}
