// The backend for GPUs: calls are captured in a graph, and its replay is timed by events.
#include <cuda_runtime.h>

#include "backend.hpp"
#include "kernels/gpu/call_graph.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::perf {

namespace {

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
  kernels::TimingEvent start_;
  kernels::TimingEvent end_;
  kernels::CallGraph graph_;
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
    return kernels::gpuTimedCall(stream_, call, timing, before);
  }
  std::unique_ptr<TimedCall> prepareSeparate(const Call& before, const Call& call,
                                             const TimingOptions& timing) override {
    kernels::warmUp(stream_, call, timing.warmup);
    kernels::warmUp(stream_, before, 1);
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
