#include "measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>

#include "bench/json_line.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"

namespace mscclpp::bench {

namespace {

double medianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// A rank's memories, and its connection to the other rank.
class BenchmarkRank {
 public:
  BenchmarkRank(const Options& options, std::shared_ptr<Bootstrap> bootstrap, Backend& backend)
      : options_(options),
        backend_(backend),
        rank_(bootstrap->getRank()),
        bytes_(std::max<std::uint64_t>(8, *std::max_element(options.sizes.begin(), options.sizes.end()))),
        communicator_(bootstrap),
        source_(backend.allocate(bytes_)),
        target_(backend.allocate(bytes_)) {
    EndpointConfig config(backend.transport(), backend.device());
    config.cudaIpc.streams = options.streams;
    config.cudaIpc.bytesPerStream = options.bytesPerStream;
    connection_ = communicator_.connect(config, 1 - rank_).get();
    local_ = communicator_.registerMemory(source_.get(), bytes_, backend.transport());
    recvBuffer_ = communicator_.registerMemory(target_.get(), bytes_, backend.transport());
    communicator_.sendMemory(recvBuffer_, 1 - rank_);
    remote_ = communicator_.recvMemory(1 - rank_).get();
    const std::vector<char> pattern(bytes_, static_cast<char>(17 + rank_));
    backend.upload(source_.get(), pattern.data(), bytes_);
  }

  int rank() const { return rank_; }
  Connection& connection() { return connection_; }
  const RegisteredMemory& local() const { return local_; }
  const RegisteredMemory& remote() const { return remote_; }
  void barrier() { communicator_.bootstrap()->barrier(); }

  /// The median of nanoseconds per message; the two ranks' values differ by at most one hop.
  template <class Trigger>
  double time(const Workload& workload) {
    ProxyServiceOptions serviceOptions{.thread = {.device = backend_.device()},
                                       .fifoSize = options_.fifoSize,
                                       .popsPerTailUpdate = options_.popsPerTailUpdate};
    if (options_.numaLocal) serviceOptions.thread.affinity = ProxyAffinity::DeviceNumaNode;
    if (options_.sleepAfter >= 0) serviceOptions.thread.sleepAfter = std::chrono::microseconds(options_.sleepAfter);
    BasicProxyService<Trigger> service(serviceOptions);
    const auto semaphore = service.buildAndAddSemaphore(communicator_, connection_);
    const auto dst = service.addMemory(remote_);
    const auto src = service.addMemory(local_);
    const auto channel = service.portChannel(semaphore, dst, src);
    service.startProxy(true);
    std::vector<double> times;
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      barrier();
      auto handle = channel.deviceHandle();
      if (!options_.inlineValues) handle.srcBytes_ = 0;
      times.push_back(backend_.run(handle, workload) / workload.messages);
      communicator_.monitor(backend_.device().type)->check();
    }
    service.stopProxy();
    barrier();
    const bool receives =
        workload.operation != Operation::SignalOnly && (workload.mode == Mode::PingPong || rank_ == 1);
    if (receives) check(workload.bytes);
    return medianOf(times);
  }

 private:
  void check(std::uint64_t bytes) {
    std::vector<char> arrived(bytes);
    backend_.download(arrived.data(), target_.get(), bytes);
    const char expected = static_cast<char>(17 + 1 - rank_);
    if (std::any_of(arrived.begin(), arrived.end(), [&](char byte) { return byte != expected; })) {
      throw Error("wrong data in a message of " + std::to_string(bytes) + " bytes", ErrorCode::InternalError);
    }
  }

  const Options& options_;
  Backend& backend_;
  int rank_;
  std::uint64_t bytes_;
  Communicator communicator_;
  std::shared_ptr<void> source_;
  std::shared_ptr<void> target_;
  Connection connection_;
  RegisteredMemory local_;
  RegisteredMemory recvBuffer_;
  RegisteredMemory remote_;
};

void print(const Options& options, Measurement measure, Operation operation, ReleaseScope releaseScope, bool wide,
           std::uint64_t bytes, int messages, double nanoseconds) {
  const double gigabytes = operation == Operation::SignalOnly ? 0 : static_cast<double>(bytes) / nanoseconds;
  if (options.json) {
    fmt::print("{}\n", JsonLine()
                           .add("bench", "port_channel")
                           .add("measure", nameOf(measure))
                           .add("operation", nameOf(operation))
                           .add("releaseScope", nameOf(releaseScope))
                           .add("trigger", wide ? "wide" : "compact")
                           .add("bytes", bytes)
                           .add("messages", messages)
                           .add("values", options.inlineValues)
                           .add("streams", options.streams)
                           .add("bytesPerStream", options.bytesPerStream)
                           .add("us", nanoseconds / 1000)
                           .add("GBps", gigabytes)
                           .text());
  } else {
    fmt::print("{:>12} {:>16} {:>8} {:>8} {:>12} {:>9} {:>12.3f} {:>10.2f}\n", nameOf(measure), nameOf(operation),
               nameOf(releaseScope), wide ? "wide" : "compact", bytes, messages, nanoseconds / 1000, gigabytes);
  }
  std::fflush(stdout);
}

int messagesFor(const Options& options, Measurement measure, std::uint64_t bytes) {
  if (options.messages > 0) return options.messages;
  constexpr std::uint64_t total = std::uint64_t{4} << 30;
  const std::uint64_t most = measure == Measurement::PingPong ? 2000 : 4000;
  // Even, so that both ranks send the same number.
  return static_cast<int>(std::clamp<std::uint64_t>(total / std::max<std::uint64_t>(bytes, 1), 16, most) / 2 * 2);
}

/// One step on the host: the time of its call, and the time until it is complete on the device.
void printStep(const Options& options, const std::string& part, double call, double done) {
  if (options.json) {
    fmt::print("{}\n", JsonLine()
                           .add("bench", "port_channel")
                           .add("measure", "breakdown")
                           .add("part", part)
                           .add("us_call", call)
                           .add("us_done", done)
                           .text());
  } else {
    fmt::print("{:>12} {:>26} {:>12.3f} us until the call returns {:>12.3f} us until completion\n", "breakdown", part,
               call, done);
  }
  std::fflush(stdout);
}

/// Times `operation` alone on an idle connection. Completion is a value that the device stores in host memory after the
/// operation, or, if the transport does not support that, a query of the connection.
void measureStep(const Options& options, BenchmarkRank& self, Backend& backend, const std::string& part,
                 const std::function<void()>& operation) {
  using Clock = std::chrono::steady_clock;
  const auto word = backend.allocateHostWord();
  std::vector<double> calls;
  std::vector<double> completions;
  constexpr int rounds = 300;
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    const auto start = Clock::now();
    operation();
    const auto called = Clock::now();
    const bool stored = self.connection().storeWhenComplete(word.get(), round);
    const std::uint64_t issued = self.connection().issued();
    const auto limit = start + std::chrono::seconds(10);
    while (stored ? std::atomic_ref(*word).load(std::memory_order_acquire) < round
                  : self.connection().completed() < issued) {
      if (Clock::now() > limit) throw Error(part + " did not complete", ErrorCode::Timeout);
    }
    const auto done = Clock::now();
    calls.push_back(std::chrono::duration<double, std::micro>(called - start).count());
    completions.push_back(std::chrono::duration<double, std::micro>(done - start).count());
  }
  printStep(options, part, medianOf(calls), medianOf(completions));
}

void measureBreakdown(const Options& options, BenchmarkRank& self, Backend& backend) {
  self.barrier();
  if (self.rank() == 0) {
    std::uint64_t counter = 0;
    const auto put = [&] { self.connection().write(self.remote(), 0, self.local(), 0, 8); };
    const auto update = [&] { self.connection().updateAndSync(self.remote(), 0, &counter, counter + 1); };
    measureStep(options, self, backend, "nothing", [] {});
    measureStep(options, self, backend, "write of 8 bytes", put);
    measureStep(options, self, backend, "updateAndSync", update);
    const auto value = [&] {
      self.connection().beginBatch();
      self.connection().writeValue(self.remote(), 0, 1);
      update();
      self.connection().endBatch();
    };
    if (self.connection().supportsWriteValue()) measureStep(options, self, backend, "writeValue, updateAndSync", value);
    measureStep(options, self, backend, "write and updateAndSync", [&] {
      put();
      update();
    });
  }
  self.barrier();
}

}  // namespace

void measure(const Options& options, std::shared_ptr<Bootstrap> bootstrap, Backend& backend) {
  BenchmarkRank self(options, bootstrap, backend);
  if (self.rank() == 0 && !options.json) {
    fmt::print("# port channel between two ranks: {}; median of {}; streams {}, at least {} bytes each\n",
               backend.description(), options.repeats, options.streams, options.bytesPerStream);
    fmt::print("# {:>10} {:>16} {:>8} {:>8} {:>12} {:>9} {:>12} {:>10}\n", "measure", "operation", "release", "trigger",
               "bytes", "messages", "us/message", "GB/s");
  }
  for (const Measurement measure : options.measurements) {
    if (measure == Measurement::Breakdown) {
      measureBreakdown(options, self, backend);
      continue;
    }
    for (const int wide : options.wide) {
      for (const Operation operation : options.operations) {
        for (const ReleaseScope releaseScope : options.releaseScopes) {
          for (const std::uint64_t bytes : options.sizes) {
            const int messages = messagesFor(options, measure, bytes);
            const Workload workload{measure == Measurement::Stream ? Mode::Stream : Mode::PingPong,
                                    operation,
                                    releaseScope,
                                    self.rank(),
                                    std::min(messages, 20) / 2 * 2,
                                    messages,
                                    bytes};
            const double each = wide != 0 ? self.time<WideTrigger>(workload) : self.time<ProxyTrigger>(workload);
            if (self.rank() == 0) print(options, measure, operation, releaseScope, wide != 0, bytes, messages, each);
          }
        }
      }
    }
  }
}

}  // namespace mscclpp::bench
