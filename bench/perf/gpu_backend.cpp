// The backend for GPUs: calls are captured in a graph, and its replay is timed by events.
#include <cuda_runtime.h>

#include "backend.hpp"
#include "median.hpp"
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

class GpuBackend : public Backend {
 public:
  explicit GpuBackend(int index) : index_(index) {
    MSCCLPP_CUDATHROW(cudaSetDevice(index));
    MSCCLPP_CUDATHROW(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    MSCCLPP_CUDATHROW(cudaEventCreate(&start_));
    MSCCLPP_CUDATHROW(cudaEventCreate(&end_));
  }
  ~GpuBackend() override {
    cudaEventDestroy(end_);
    cudaEventDestroy(start_);
    cudaStreamDestroy(stream_);
  }

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

  double time(const Call& call, const TimingOptions& timing, const std::function<void()>& barrier) override {
    for (int i = 0; i < timing.warmup; ++i) call(stream_);
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream_));
    // A short graph before the measured one absorbs the skew between the ranks' launches, and hides the event's cost.
    const Graph warmupGraph(stream_, call, 10);
    const Graph measuredGraph(stream_, call, timing.calls);
    std::vector<double> microseconds;
    for (int repeat = 0; repeat < timing.repeats; ++repeat) {
      barrier();
      warmupGraph.launch(stream_);
      MSCCLPP_CUDATHROW(cudaEventRecord(start_, stream_));
      measuredGraph.launch(stream_);
      MSCCLPP_CUDATHROW(cudaEventRecord(end_, stream_));
      MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream_));
      float milliseconds = 0;
      MSCCLPP_CUDATHROW(cudaEventElapsedTime(&milliseconds, start_, end_));
      microseconds.push_back(1000.0 * milliseconds / timing.calls);
    }
    return median(microseconds);
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
  cudaEvent_t start_ = nullptr;
  cudaEvent_t end_ = nullptr;
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
