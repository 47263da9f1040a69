// Times a loop of calls by the steady clock.
#include "kernels/timed_calls.hpp"

#include <chrono>

namespace mscclpp::kernels {

namespace {

class LoopOfCalls : public TimedCall {
 public:
  LoopOfCalls(const Call& call, int calls, const Call& before) : call_(call), calls_(calls), before_(before) {}

  std::vector<double> measure(const std::function<void()>& barrier) override {
    if (before_) before_(nullptr);
    barrier();
    call_(nullptr);  // absorbs the skew that the barrier leaves
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls_; ++i) call_(nullptr);
    const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
    return {passed.count() / calls_};
  }

 private:
  Call call_;
  int calls_;
  Call before_;
};

}  // namespace

std::unique_ptr<TimedCall> cpuTimedCall(const Call& call, const TimingOptions& timing, const Call& before) {
  for (int i = 0; i < timing.warmup; ++i) call(nullptr);
  return std::make_unique<LoopOfCalls>(call, timing.calls, before);
}

}  // namespace mscclpp::kernels
