// The backend for GPUs: calls are captured in a graph, and its replay is timed by events.
#include <cuda_runtime.h>

#include <algorithm>

#include "backend.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::perf {

namespace {

class Graph {
 public:
  Graph(cudaStream_t stream, const Call& call, int calls) {
    MSCCLPP_CUDATHROW(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; ++i) call(stream);
    cudaGraph_t graph = nullptr;
    MSCCLPP_CUDATHROW(cudaStreamEndCapture(stream, &graph));
    const cudaError_t error = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    MSCCLPP_CUDATHROW(error);
    MSCCLPP_CUDATHROW(cudaGraphUpload(executable_, stream));
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
  }
  ~Graph() { cudaGraphExecDestroy(executable_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream) const { MSCCLPP_CUDATHROW(cudaGraphLaunch(executable_, stream)); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

class Event {
 public:
  Event() { MSCCLPP_CUDATHROW(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) const { MSCCLPP_CUDATHROW(cudaEventRecord(event_, stream)); }
  /// Captures a node that records the event in each replay.
  void capture(cudaStream_t stream) const {
    MSCCLPP_CUDATHROW(cudaEventRecordWithFlags(event_, stream, cudaEventRecordExternal));
  }
  /// Microseconds since another event. Both have completed.
  double since(const Event& start) const {
    float milliseconds = 0;
    MSCCLPP_CUDATHROW(cudaEventElapsedTime(&milliseconds, start.event_, event_));
    return 1000.0 * milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

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
  Graph skew_;
  Graph measured_;
  Event start_;
  Event end_;
};

class CallInEachGraph : public TimedCall {
 public:
  CallInEachGraph(cudaStream_t stream, const Call& before, const Call& call, int replays)
      : stream_(stream),
        replays_(replays),
        graph_(
            stream,
            [&](cudaStream_t captured) {
              before(captured);
              start_.capture(captured);
              call(captured);
              end_.capture(captured);
            },
            1) {}

  std::vector<double> measure(const std::function<void()>& barrier) override {
    std::vector<double> microseconds;
    barrier();
    for (int replay = 0; replay < replays_; ++replay) {
      graph_.launch(stream_);
      MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream_));
      microseconds.push_back(end_.since(start_));
    }
    return microseconds;
  }

 private:
  cudaStream_t stream_;
  int replays_;
  Event start_;
  Event end_;
  Graph graph_;
};

class GpuBackend : public Backend {
 public:
  explicit GpuBackend(int index) : index_(index) {
    MSCCLPP_CUDATHROW(cudaSetDevice(index));
    MSCCLPP_CUDATHROW(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~GpuBackend() override { cudaStreamDestroy(stream_); }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    void* memory = nullptr;
    MSCCLPP_CUDATHROW(cudaMalloc(&memory, bytes + 1));
    return {memory, [](void* m) { cudaFree(m); }};
  }
  void upload(void* to, const void* from, std::size_t bytes) override {
    MSCCLPP_CUDATHROW(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_));
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream_));
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    MSCCLPP_CUDATHROW(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_));
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream_));
  }
  void fill(void* to, int byte, std::size_t bytes) override {
    MSCCLPP_CUDATHROW(cudaMemsetAsync(to, byte, bytes, stream_));
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream_));
  }
  void runOnce(const Call& call) override {
    call(stream_);
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream_));
  }

  std::unique_ptr<TimedCall> prepare(const Call& call, const TimingOptions& timing, const Call& before) override {
    warmUp(call, timing.warmup);
    return std::make_unique<CallsInOneGraph>(stream_, call, timing.calls, before);
  }
  std::unique_ptr<TimedCall> prepareSeparate(const Call& before, const Call& call,
                                             const TimingOptions& timing) override {
    warmUp(call, timing.warmup);
    warmUp(before, 1);
    return std::make_unique<CallInEachGraph>(stream_, before, call, timing.calls);
  }

  std::string deviceName() const override {
    cudaDeviceProp properties{};
    MSCCLPP_CUDATHROW(cudaGetDeviceProperties(&properties, index_));
    return properties.name;
  }
  std::string description() const override {
    cudaDeviceProp properties{};
    int driver = 0;
    int runtime = 0;
    MSCCLPP_CUDATHROW(cudaGetDeviceProperties(&properties, index_));
    MSCCLPP_CUDATHROW(cudaDriverGetVersion(&driver));
    MSCCLPP_CUDATHROW(cudaRuntimeGetVersion(&runtime));
    return std::string(properties.name) + ", CUDA driver " + std::to_string(driver) + ", runtime " +
           std::to_string(runtime);
  }

 private:
  /// At least one call, which loads its kernels: a capture may not.
  void warmUp(const Call& call, int calls) {
    for (int i = 0; i < std::max(calls, 1); ++i) call(stream_);
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream_));
  }

  int index_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

int gpuCount(std::string& reason) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  reason = error == cudaSuccess ? "the driver reports no device" : cudaGetErrorString(error);
  return 0;
}

std::unique_ptr<Backend> makeGpuBackend(int index) {
  return std::make_unique<GpuBackend>(index);
}

}  // namespace mscclpp::perf
