#include "measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/proxy_service.hpp"

namespace mscclpp::bench {

namespace {

double medianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// One rank's memories, and the connection to the other.
class End {
 public:
  End(const Options& options, std::shared_ptr<Bootstrap> bootstrap, Place& place)
      : options_(options),
        place_(place),
        rank_(bootstrap->getRank()),
        bytes_(std::max<std::uint64_t>(8, *std::max_element(options.sizes.begin(), options.sizes.end()))),
        communicator_(bootstrap),
        source_(place.allocate(bytes_)),
        target_(place.allocate(bytes_)) {
    EndpointConfig config(place.transport(), place.device());
    config.cudaIpc.streams = options.streams;
    config.cudaIpc.bytesPerStream = options.bytesPerStream;
    connection_ = communicator_.connect(config, 1 - rank_).get();
    local_ = communicator_.registerMemory(source_.get(), bytes_, place.transport());
    inbox_ = communicator_.registerMemory(target_.get(), bytes_, place.transport());
    communicator_.sendMemory(inbox_, 1 - rank_);
    remote_ = communicator_.recvMemory(1 - rank_).get();
    const std::vector<char> pattern(bytes_, static_cast<char>(17 + rank_));
    place.upload(source_.get(), pattern.data(), bytes_);
  }

  int rank() const { return rank_; }
  Connection& connection() { return connection_; }
  const RegisteredMemory& local() const { return local_; }
  const RegisteredMemory& remote() const { return remote_; }
  void together() { communicator_.bootstrap()->barrier(); }

  /// Median of nanoseconds a message; at the rank that has waited last it is the same but for a hop.
  template <class Trigger>
  double time(const Order& order) {
    ProxyServiceOptions serviceOptions{
        .thread = {.device = place_.device()}, .fifoSize = options_.fifoSize, .popsPerReport = options_.popsPerReport};
    if (options_.near) serviceOptions.thread.place = ProxyPlace::NearDevice;
    if (options_.sleepAfter >= 0) serviceOptions.thread.sleepAfter = std::chrono::microseconds(options_.sleepAfter);
    BasicProxyService<Trigger> service(serviceOptions);
    const auto semaphore = service.buildAndAddSemaphore(communicator_, connection_);
    const auto dst = service.addMemory(remote_);
    const auto src = service.addMemory(local_);
    const auto channel = service.portChannel(semaphore, dst, src);
    service.startProxy(true);
    std::vector<double> times;
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      together();
      auto handle = channel.deviceHandle();
      if (!options_.values) handle.srcBytes_ = 0;
      times.push_back(place_.run(handle, order) / order.messages);
      communicator_.monitor(place_.device().type)->check();
    }
    service.stopProxy();
    together();
    const bool receives = order.form != Form::SignalOnly && (order.mode == Mode::PingPong || rank_ == 1);
    if (receives) check(order.bytes);
    return medianOf(times);
  }

 private:
  void check(std::uint64_t bytes) {
    std::vector<char> arrived(bytes);
    place_.download(arrived.data(), target_.get(), bytes);
    const char expected = static_cast<char>(17 + 1 - rank_);
    if (std::any_of(arrived.begin(), arrived.end(), [&](char byte) { return byte != expected; })) {
      throw Error("the data of " + std::to_string(bytes) + " bytes arrived wrong", ErrorCode::InternalError);
    }
  }

  const Options& options_;
  Place& place_;
  int rank_;
  std::uint64_t bytes_;
  Communicator communicator_;
  std::shared_ptr<void> source_;
  std::shared_ptr<void> target_;
  Connection connection_;
  RegisteredMemory local_;
  RegisteredMemory inbox_;
  RegisteredMemory remote_;
};

void print(const Options& options, Measure measure, Form form, Publish publish, bool wide, std::uint64_t bytes,
           int messages, double nanoseconds) {
  const double gigabytes = form == Form::SignalOnly ? 0 : static_cast<double>(bytes) / nanoseconds;
  if (options.json) {
    const nlohmann::ordered_json line{{"bench", "port_channel"},
                                      {"measure", nameOf(measure)},
                                      {"form", nameOf(form)},
                                      {"publish", nameOf(publish)},
                                      {"trigger", wide ? "wide" : "compact"},
                                      {"bytes", bytes},
                                      {"messages", messages},
                                      {"values", options.values},
                                      {"streams", options.streams},
                                      {"bytesPerStream", options.bytesPerStream},
                                      {"us", nanoseconds / 1000},
                                      {"GBps", gigabytes}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("{:>12} {:>16} {:>8} {:>8} {:>12} {:>9} {:>12.3f} {:>10.2f}\n", nameOf(measure), nameOf(form),
               nameOf(publish), wide ? "wide" : "compact", bytes, messages, nanoseconds / 1000, gigabytes);
  }
  std::fflush(stdout);
}

int messagesFor(const Options& options, Measure measure, std::uint64_t bytes) {
  if (options.messages > 0) return options.messages;
  constexpr std::uint64_t total = std::uint64_t{4} << 30;
  const std::uint64_t most = measure == Measure::PingPong ? 2000 : 4000;
  // Even, so that both ranks send as often.
  return static_cast<int>(std::clamp<std::uint64_t>(total / std::max<std::uint64_t>(bytes, 1), 16, most) / 2 * 2);
}

/// A part of the way, as the host sees it: how long its call takes, and how long until the device says that it is done.
void printPart(const Options& options, const std::string& part, double call, double done) {
  if (options.json) {
    fmt::print(
        "{}\n",
        nlohmann::ordered_json{
            {"bench", "port_channel"}, {"measure", "parts"}, {"part", part}, {"us_call", call}, {"us_done", done}}
            .dump());
  } else {
    fmt::print("{:>12} {:>26} {:>12.3f} us until the call returns {:>12.3f} us until it is done\n", "parts", part, call,
               done);
  }
  std::fflush(stdout);
}

/// Times `operation` alone on an idle connection. Completion is seen in host memory, where the device stores it behind the operation; where the transport
/// has no such thing, by asking.
void timePart(const Options& options, End& end, Place& place, const std::string& part,
              const std::function<void()>& operation) {
  using Clock = std::chrono::steady_clock;
  const auto word = place.allocateHostWord();
  std::vector<double> calls;
  std::vector<double> completions;
  constexpr int rounds = 300;
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    const auto start = Clock::now();
    operation();
    const auto called = Clock::now();
    const bool stored = end.connection().storeWhenComplete(word.get(), round);
    const std::uint64_t issued = end.connection().issued();
    const auto limit = start + std::chrono::seconds(10);
    while (stored ? std::atomic_ref(*word).load(std::memory_order_acquire) < round
                  : end.connection().completed() < issued) {
      if (Clock::now() > limit) throw Error(part + " did not complete", ErrorCode::Timeout);
    }
    const auto done = Clock::now();
    calls.push_back(std::chrono::duration<double, std::micro>(called - start).count());
    completions.push_back(std::chrono::duration<double, std::micro>(done - start).count());
  }
  printPart(options, part, medianOf(calls), medianOf(completions));
}

void timeParts(const Options& options, End& end, Place& place) {
  end.together();
  if (end.rank() == 0) {
    std::uint64_t counter = 0;
    const auto put = [&] { end.connection().write(end.remote(), 0, end.local(), 0, 8); };
    const auto update = [&] { end.connection().updateAndSync(end.remote(), 0, &counter, counter + 1); };
    timePart(options, end, place, "nothing", [] {});
    timePart(options, end, place, "write of 8 bytes", put);
    timePart(options, end, place, "updateAndSync", update);
    const auto value = [&] {
      end.connection().beginBatch();
      end.connection().writeValue(end.remote(), 0, 1);
      update();
      end.connection().endBatch();
    };
    if (end.connection().writesValues()) timePart(options, end, place, "writeValue, updateAndSync", value);
    timePart(options, end, place, "write and updateAndSync", [&] {
      put();
      update();
    });
  }
  end.together();
}

}  // namespace

void measure(const Options& options, std::shared_ptr<Bootstrap> bootstrap, Place& place) {
  End end(options, bootstrap, place);
  if (end.rank() == 0 && !options.json) {
    fmt::print("# port channel between two ranks: {}; median of {}; streams {}, {} bytes each at least\n",
               place.description(), options.repeats, options.streams, options.bytesPerStream);
    fmt::print("# {:>10} {:>16} {:>8} {:>8} {:>12} {:>9} {:>12} {:>10}\n", "measure", "form", "publish", "trigger",
               "bytes", "messages", "us/message", "GB/s");
  }
  for (const Measure measure : options.measures) {
    if (measure == Measure::Parts) {
      timeParts(options, end, place);
      continue;
    }
    for (const int wide : options.wide) {
      for (const Form form : options.forms) {
        for (const Publish publish : options.publishes) {
          for (const std::uint64_t bytes : options.sizes) {
            const int messages = messagesFor(options, measure, bytes);
            const Order order{measure == Measure::Stream ? Mode::Stream : Mode::PingPong,
                              form,
                              publish,
                              end.rank(),
                              std::min(messages, 20) / 2 * 2,
                              messages,
                              bytes};
            const double each = wide != 0 ? end.time<WideTrigger>(order) : end.time<ProxyTrigger>(order);
            if (end.rank() == 0) print(options, measure, form, publish, wide != 0, bytes, messages, each);
          }
        }
      }
    }
  }
}

}  // namespace mscclpp::bench
