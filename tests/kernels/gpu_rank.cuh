// A test process as a rank, on a GPU of its own if there are enough, and what its cases need: memory and graphs.
#pragma once

#include <cuda_runtime.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"
#include "tests/host/spawned_ranks.hpp"

namespace mscclpp::test {

inline constexpr int timeoutSeconds = 90;

inline int gpus() {
  int count = 0;
  MSCCLPP_CUDATHROW(cudaGetDeviceCount(&count));
  return std::min(count, 8);
}

/// One rank for each GPU; on a single one two, which take turns.
inline void runOnAllGpus(const std::string& testCase, int killedRank = -1, int seconds = timeoutSeconds) {
  runAsProcesses(std::max(gpus(), 2), testCase, std::chrono::seconds(seconds), killedRank);
}

inline double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// This process as a rank, with a bootstrap that detects failed ranks.
struct GpuRank {
  int rank;
  int ranks;
  std::shared_ptr<Bootstrap> sockets;  ///< of the test program; detects no failed ranks
  std::shared_ptr<TcpBootstrap> bootstrap;
  std::shared_ptr<Communicator> communicator;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  explicit GpuRank(int seconds = timeoutSeconds) {
    ::alarm(static_cast<unsigned>(seconds));  // terminates this process in any case
    sockets = bootstrapOfProcess();
    rank = sockets->getRank();
    ranks = sockets->getNranks();
    MSCCLPP_CUDATHROW(cudaSetDevice(rank % gpus()));
    std::vector<UniqueId> ids(static_cast<std::size_t>(ranks));
    if (rank == 0) ids[0] = TcpBootstrap::createUniqueId();
    sockets->allGather(ids.data(), sizeof(UniqueId));
    bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
    bootstrap->initialize(ids[0]);
    communicator = std::make_shared<Communicator>(bootstrap);
  }

  void report(const std::string& what) const {
    if (rank != 0) return;
    std::printf("%d GPUs: %s (%.1f s)\n", std::min(ranks, gpus()), what.c_str(), secondsSince(start));
  }
};

template <class T>
detail::UniqueGpuPtr<T> copyToGpu(const std::vector<T>& values) {
  auto memory = detail::gpuCallocUnique<T>(values.size());
  gpuMemcpy(memory.get(), values.data(), values.size(), cudaMemcpyHostToDevice);
  return memory;
}

/// The work enqueued by record(), as a graph.
class Graph {
 public:
  Graph(cudaStream_t stream, const std::function<void()>& record) : stream_(stream) {
    MSCCLPP_CUDATHROW(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    record();
    cudaGraph_t graph = nullptr;
    MSCCLPP_CUDATHROW(cudaStreamEndCapture(stream, &graph));
    MSCCLPP_CUDATHROW(cudaGraphInstantiate(&executable_, graph, 0));
    MSCCLPP_CUDATHROW(cudaGraphDestroy(graph));
  }
  ~Graph() { cudaGraphExecDestroy(executable_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch() const { MSCCLPP_CUDATHROW(cudaGraphLaunch(executable_, stream_)); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace mscclpp::test
