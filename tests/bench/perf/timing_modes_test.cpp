// What the modes of timing enqueue around a call, and what they report; on a device that records instead of executing.
#include "bench/perf/timing_modes.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::perf;

namespace {

/// Everything that was enqueued: "call 3", "delay", ...
using Log = std::vector<std::string>;

class RecordedKernels : public TimingKernels {
 public:
  explicit RecordedKernels(Log& log) : log_(log) {}
  void delay(CUstream_st*) override { log_.push_back("delay"); }
  void produce(void*, std::size_t bytes, CUstream_st*) override { log_.push_back("produce " + std::to_string(bytes)); }
  void consume(const void*, std::size_t bytes, CUstream_st*) override {
    log_.push_back("consume " + std::to_string(bytes));
  }
  std::size_t cacheBytes() const override { return 50 << 20; }

 private:
  Log& log_;
};

/// The time of a call is the number of things it enqueues.
class RecordedCall : public TimedCall {
 public:
  RecordedCall(Log& log, const Call& call, int calls, const Call& before) : log_(log), before_(before) {
    Log outer;
    log_.swap(outer);
    for (int i = 0; i < calls; ++i) call(nullptr);
    steps_ = log_;
    log_.swap(outer);
    microseconds_ = static_cast<double>(steps_.size()) / calls;
  }
  std::vector<double> measure(const std::function<void()>& barrier) override {
    barrier();
    if (before_) before_(nullptr);
    log_.insert(log_.end(), steps_.begin(), steps_.end());
    return {microseconds_};
  }

 private:
  Log& log_;
  Call before_;
  Log steps_;
  double microseconds_;
};

class RecordingBackend : public Backend {
 public:
  explicit RecordingBackend(Log& log) : log_(log) {}
  std::shared_ptr<void> allocate(std::size_t) override { return std::make_shared<int>(); }
  void upload(void*, const void*, std::size_t) override {}
  void download(void*, const void*, std::size_t) override {}
  void fill(void*, int, std::size_t) override {}
  void runOnce(const Call& call) override { call(nullptr); }
  std::unique_ptr<TimedCall> prepare(const Call& call, const TimingOptions& timing, const Call& before) override {
    return std::make_unique<RecordedCall>(log_, call, timing.calls, before);
  }
  std::unique_ptr<TimedCall> prepareSeparate(const Call& before, const Call& call,
                                             const TimingOptions& timing) override {
    const Call both = [before, call, this](CUstream_st* stream) {
      before(stream);
      log_.push_back("start");
      call(stream);
      log_.push_back("end");
    };
    return std::make_unique<RecordedCall>(log_, both, timing.calls, Call{});
  }
  std::string description() const override { return "recorded"; }
  std::string deviceName() const override { return {}; }

 private:
  Log& log_;
};

/// What one measurement of 4 calls enqueues, and its value.
struct Recorded {
  Log log;
  double microseconds;
  std::size_t pairs;
};

Recorded record(TimingMode mode, std::size_t bytesOfPair) {
  Recorded result;
  RecordingBackend backend(result.log);
  RecordedKernels kernels(result.log);
  Options options;
  options.mode = mode;
  options.timing.calls = 4;
  const ModeTimer timer(options, backend, &kernels, [&](CUstream_st*) { result.log.push_back("align"); });
  result.pairs = timer.pairs(bytesOfPair);
  TimedOperation operation{};
  operation.call = [&](std::size_t pair, CUstream_st*) { result.log.push_back("call " + std::to_string(pair)); };
  operation.pairs = result.pairs;
  operation.inputBytes = 100;
  operation.outputBytes = 300;
  result.microseconds = timer.prepare(operation)->measure([] {}).front();
  return result;
}

}  // namespace

TEST_CASE("steady: the same buffers again and again") {
  const Recorded steady = record(TimingMode::Steady, 1000);
  CHECK(steady.pairs == 1);
  CHECK(steady.log == Log{"call 0", "call 0", "call 0", "call 0"});
}

TEST_CASE("skewed: each call after an alignment and a delay, which are not timed") {
  Log expected;
  for (int i = 0; i < 4; ++i) {
    for (const char* step : {"align", "delay", "start", "call 0", "end"}) expected.emplace_back(step);
  }
  CHECK(record(TimingMode::Skewed, 1000).log == expected);
}

TEST_CASE("rotated: buffers that are not in the cache") {
  const std::size_t cache = 50 << 20;
  // Long messages: pairs that together exceed twice the cache.
  const Recorded longer = record(TimingMode::Rotated, 40 << 20);
  CHECK(longer.pairs == 3);
  CHECK(longer.pairs * (40 << 20) > 2 * cache);
  CHECK(longer.log == Log{"produce " + std::to_string(2 * cache), "call 0", "call 1", "call 2", "call 0"});
  CHECK(record(TimingMode::Rotated, 1 << 30).pairs == 2);
  // Short ones: a pair for each call, of the measurement and of those before it.
  const Recorded shorter = record(TimingMode::Rotated, 1000);
  CHECK(shorter.pairs == 4 + skewCalls);
  CHECK(std::set<std::string>(shorter.log.begin(), shorter.log.end()).size() == 1 + 4);
}

TEST_CASE("between: the call's share of producer, call and consumer") {
  const Recorded between = record(TimingMode::Between, 1000);
  Log expected;
  for (int i = 0; i < 4; ++i) {
    for (const char* step : {"produce 100", "call 0", "consume 300"}) expected.emplace_back(step);
  }
  for (int i = 0; i < 4; ++i) {
    for (const char* step : {"produce 100", "consume 300"}) expected.emplace_back(step);
  }
  CHECK(between.log == expected);
  CHECK(between.microseconds == 1);
}

TEST_CASE("what is reported of all ranks' samples") {
  test::runAsThreads(3, [](std::shared_ptr<Bootstrap> bootstrap) {
    const RankGroup group(*bootstrap);
    const std::vector<std::vector<double>> samples{{1, 9, 2}, {5, 3, 4}, {6, 6, 1}};
    const auto& mine = samples[static_cast<std::size_t>(group.rank())];
    // Medians 2, 4 and 6.
    const Timing steady = summarize(TimingMode::Steady, mine, group);
    CHECK(steady.slowest == 6);
    CHECK(steady.fastest == 2);
    // Maxima of the replays 6, 9 and 4; minima 1, 3 and 1.
    const Timing skewed = summarize(TimingMode::Skewed, mine, group);
    CHECK(skewed.slowest == 6);
    CHECK(skewed.fastest == 1);
    bootstrap->barrier();
  });
}
