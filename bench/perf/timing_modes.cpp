#include "timing_modes.hpp"

#include <algorithm>
#include <utility>

#include "median.hpp"

namespace mscclpp::perf {

namespace {

/// The time of a sequence less that of another one.
class Difference : public TimedCall {
 public:
  Difference(std::unique_ptr<TimedCall> whole, std::unique_ptr<TimedCall> part)
      : whole_(std::move(whole)), part_(std::move(part)) {}

  std::vector<double> measure(const std::function<void()>& barrier) override {
    const double whole = whole_->measure(barrier).front();
    return {whole - part_->measure(barrier).front()};
  }

 private:
  std::unique_ptr<TimedCall> whole_;
  std::unique_ptr<TimedCall> part_;
};

}  // namespace

ModeTimer::ModeTimer(const Options& options, Backend& backend, TimingKernels* kernels, Call align)
    : options_(options), backend_(backend), kernels_(kernels), align_(std::move(align)) {
  if (options.mode == TimingMode::Rotated) evicting_ = backend.allocate(2 * kernels->cacheBytes());
}

std::size_t ModeTimer::pairs(std::size_t bytes) const {
  if (options_.mode != TimingMode::Rotated) return 1;
  const std::size_t beyondCache = 2 * kernels_->cacheBytes() / std::max<std::size_t>(bytes, 1) + 1;
  // No more than the calls of a measurement: each then uses a pair that is not in the cache, since it was evicted.
  const auto calls = static_cast<std::size_t>(options_.timing.calls + skewCalls);
  return std::clamp<std::size_t>(beyondCache, 2, std::max<std::size_t>(calls, 2));
}

std::unique_ptr<TimedCall> ModeTimer::prepare(const TimedOperation& operation) const {
  const Call first = [call = operation.call](CUstream_st* stream) { call(0, stream); };
  switch (options_.mode) {
    case TimingMode::Steady:
      break;
    case TimingMode::Skewed:
      return backend_.prepareSeparate(
          [kernels = kernels_, align = align_](CUstream_st* stream) {
            align(stream);
            kernels->delay(stream);
          },
          first, options_.timing);
    case TimingMode::Rotated: {
      const Call rotating = [operation, next = std::size_t{0}](CUstream_st* stream) mutable {
        operation.call(next, stream);
        next = next + 1 == operation.pairs ? 0 : next + 1;
      };
      const Call evict = [kernels = kernels_, memory = evicting_](CUstream_st* stream) {
        kernels->produce(memory.get(), 2 * kernels->cacheBytes(), stream);
      };
      return backend_.prepare(rotating, options_.timing, evict);
    }
    case TimingMode::Between: {
      const auto surround = [kernels = kernels_, operation](const Call& call) -> Call {
        return [kernels, operation, call](CUstream_st* stream) {
          kernels->produce(operation.input, operation.inputBytes, stream);
          if (call) call(stream);
          kernels->consume(operation.output, operation.outputBytes, stream);
        };
      };
      auto whole = backend_.prepare(surround(first), options_.timing);
      return std::make_unique<Difference>(std::move(whole), backend_.prepare(surround({}), options_.timing));
    }
  }
  return backend_.prepare(first, options_.timing);
}

Timing summarize(TimingMode mode, const std::vector<double>& samples, const RankGroup& group) {
  const std::vector<double> mine = mode == TimingMode::Skewed ? samples : std::vector<double>{median(samples)};
  const std::vector<double> all = group.gather(mine);
  std::vector<double> slowest = mine;
  std::vector<double> fastest = mine;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t sample = i % mine.size();
    slowest[sample] = std::max(slowest[sample], all[i]);
    fastest[sample] = std::min(fastest[sample], all[i]);
  }
  return {median(slowest), median(fastest)};
}

}  // namespace mscclpp::perf
