// 15 on GPUs: the calls of a layer in a graph.
#include <algorithm>
#include <cstdio>

#include "gpu_example.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"
#include "problem.hpp"

using namespace mscclpp;

namespace {

constexpr int expertsPerRank = 4;

/// A block for each expert: stands for a grouped GEMM, which reads counts and offsets in the same way.
__global__ void runExperts(bf16* rows, const std::uint32_t* counts, const std::uint32_t* offsets, std::uint32_t hidden,
                           int firstExpert) {
  const float factor = example::factorOf(firstExpert + static_cast<int>(blockIdx.x));
  const std::size_t first = std::size_t{offsets[blockIdx.x]} * hidden;
  const std::size_t count = std::size_t{counts[blockIdx.x]} * hidden;
  for (std::size_t i = threadIdx.x; i < count; i += blockDim.x) {
    rows[first + i] = narrow<bf16>(factor * widen<bf16>(rows[first + i]));
  }
}

template <class T>
GpuBuffer<T> copyToGpu(const std::vector<T>& values) {
  GpuBuffer<T> buffer(values.empty() ? 1 : values.size());
  if (!values.empty()) gpuMemcpy(buffer.data(), values.data(), values.size());
  return buffer;
}

void runLayer(ProcessGroup& group) {
  const int rank = group.rank();
  const example::Problem problem{
      .ranks = group.size(), .experts = expertsPerRank * group.size(), .tokens = 128, .hidden = 2048};
  Communicator communicator(group.connect());
  moe::Buffer buffer(communicator, DeviceType::GPU,
                     {.maxTokens = problem.tokens,
                      .maxLowLatencyTokens = problem.tokens,
                      .topk = example::Problem::topk,
                      .experts = problem.experts,
                      .hidden = problem.hidden});

  const auto rows = copyToGpu(problem.rows(rank));
  const auto experts = copyToGpu(problem.chosen(rank));
  const auto weights = copyToGpu(problem.weights(rank));
  const moe::Tokens tokens{rows.data(), nullptr, experts.data(), weights.data(), problem.tokensOf(rank)};
  const std::uint32_t capacity = std::max(buffer.largestCapacity(), buffer.lowLatencyCapacity());
  const GpuBuffer<bf16> received(std::size_t{capacity} * problem.hidden),
      output(std::size_t{problem.tokens} * problem.hidden);
  const GpuBuffer<std::uint32_t> counts(expertsPerRank), offsets(expertsPerRank + 1);
  const moe::ExpertBatch batch{received.data(), nullptr, counts.data(), offsets.data(), nullptr, capacity};
  moe::DispatchHandle handle = buffer.makeHandle();

  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  const auto enqueueLayer = [&](bool isLowLatency) {
    if (isLowLatency) {
      const auto receive = buffer.lowLatencyDispatch(tokens, batch, handle, stream, true);
      receive();  // what is enqueued between the two runs while the rows travel
    } else {
      buffer.dispatch(tokens, batch, handle, stream);
    }
    runExperts<<<expertsPerRank, 256, 0, stream>>>(received.data(), counts.data(), offsets.data(), problem.hidden,
                                                   rank * expertsPerRank);
    MSCCLPP_CUDATHROW(cudaGetLastError());
    if (isLowLatency) {
      buffer.lowLatencyCombine(received.data(), output.data(), handle, stream);
    } else {
      buffer.combine(received.data(), output.data(), handle, stream);
    }
  };
  for (const bool isLowLatency : {true, false}) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t layer = nullptr;
    MSCCLPP_CUDATHROW(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    enqueueLayer(isLowLatency);
    MSCCLPP_CUDATHROW(cudaStreamEndCapture(stream, &graph));
    MSCCLPP_CUDATHROW(cudaGraphInstantiate(&layer, graph, 0));
    for (int replay = 0; replay < 5; ++replay) {
      gpuMemset(output.data(), 0xff, output.bytes());
      MSCCLPP_CUDATHROW(cudaGraphLaunch(layer, stream));
      MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
      buffer.check();
      std::vector<bf16> results(std::size_t{problem.tokensOf(rank)} * problem.hidden);
      if (!results.empty()) gpuMemcpy(results.data(), output.data(), results.size());
      problem.check(rank, results);
    }
    MSCCLPP_CUDATHROW(cudaGraphExecDestroy(layer));
    MSCCLPP_CUDATHROW(cudaGraphDestroy(graph));
  }
  if (rank == 0) std::printf("tokens to %d experts on %d GPUs and back: right\n", problem.experts, problem.ranks);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(2, 8, argc, argv, runLayer);
}
