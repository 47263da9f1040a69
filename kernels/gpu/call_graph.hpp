// Calls captured in a CUDA graph, and the events that time it.
#pragma once

#include <cuda_runtime.h>

#include "kernels/timed_calls.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::kernels {

class CallGraph {
 public:
  CallGraph(cudaStream_t stream, const Call& call, int calls) {
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
  ~CallGraph() { cudaGraphExecDestroy(executable_); }
  CallGraph(const CallGraph&) = delete;
  CallGraph& operator=(const CallGraph&) = delete;
  void launch(cudaStream_t stream) const { MSCCLPP_CUDATHROW(cudaGraphLaunch(executable_, stream)); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

class TimingEvent {
 public:
  TimingEvent() { MSCCLPP_CUDATHROW(cudaEventCreate(&event_)); }
  ~TimingEvent() { cudaEventDestroy(event_); }
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;
  void record(cudaStream_t stream) const { MSCCLPP_CUDATHROW(cudaEventRecord(event_, stream)); }
  /// Captures a node that records the event in each replay.
  void capture(cudaStream_t stream) const {
    MSCCLPP_CUDATHROW(cudaEventRecordWithFlags(event_, stream, cudaEventRecordExternal));
  }
  /// Microseconds since another event. Both have completed.
  double since(const TimingEvent& start) const {
    float milliseconds = 0;
    MSCCLPP_CUDATHROW(cudaEventElapsedTime(&milliseconds, start.event_, event_));
    return 1000.0 * milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Makes at least one call, which loads its kernels: a capture may not.
void warmUp(cudaStream_t stream, const Call& call, int calls);

}  // namespace mscclpp::kernels
