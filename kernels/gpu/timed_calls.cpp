// Times calls by replays of a CUDA graph.
#include "kernels/timed_calls.hpp"

#include <algorithm>

#include "call_graph.hpp"

namespace mscclpp::kernels {

namespace {

class CallsInOneGraph : public TimedCall {
 public:
  CallsInOneGraph(cudaStream_t stream, const Call& call, int calls, const Call& before)
      : stream_(stream),
        calls_(calls),
        before_(before),
        skew_(stream, call, skewCalls),
        measured_(stream, call, calls) {}

  std::vector<double> measure(const std::function<void()>& barrier) override {
    if (before_) before_(stream_);
    barrier();
    // This graph absorbs the skew between the ranks' launches, and hides the event's cost.
    skew_.launch(stream_);
    start_.record(stream_);
    measured_.launch(stream_);
    end_.record(stream_);
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream_));
    return {end_.since(start_) / calls_};
  }

 private:
  cudaStream_t stream_;
  int calls_;
  Call before_;
  CallGraph skew_;
  CallGraph measured_;
  TimingEvent start_;
  TimingEvent end_;
};

}  // namespace

void warmUp(cudaStream_t stream, const Call& call, int calls) {
  for (int i = 0; i < std::max(calls, 1); ++i) call(stream);
  MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
}

std::unique_ptr<TimedCall> gpuTimedCall(CUstream_st* stream, const Call& call, const TimingOptions& timing,
                                        const Call& before) {
  warmUp(stream, call, timing.warmup);
  return std::make_unique<CallsInOneGraph>(stream, call, timing.calls, before);
}

}  // namespace mscclpp::kernels
