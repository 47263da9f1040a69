// CUDA graphs of calls of NCCL's C API, for tests.
#pragma once

#include <cuda_runtime_api.h>

#include "tests/nccl/gpu_client.hpp"

namespace mscclpp::test {

/// A captured sequence of calls, which can be run again.
class Graph {
 public:
  template <class Body>
  Graph(cudaStream_t stream, const Body& body) {
    // Relaxed: other threads of this process allocate.
    requireCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    body();
    requireCuda(cudaStreamEndCapture(stream, &graph_), "cudaStreamEndCapture");
    requireCuda(cudaGraphInstantiate(&executable_, graph_, 0), "cudaGraphInstantiate");
  }
  ~Graph() {
    static_cast<void>(cudaGraphExecDestroy(executable_));
    static_cast<void>(cudaGraphDestroy(graph_));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream) const { requireCuda(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch"); }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace mscclpp::test
