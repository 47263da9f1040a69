// 18 on GPUs, one rank per GPU: the plan becomes a kernel in the first call, which graphs capture afterwards.
#include "gpu_example.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "ring.hpp"

using namespace mscclpp;

namespace {

void gather(ProcessGroup& group) {
  const auto communicator = std::make_shared<Communicator>(group.connect());
  Executor executor(communicator);
  const ExecutionPlan plan = example::loadRing(group.rank(), group.size());
  const std::vector<float> values = example::inputOf(group.rank());
  const GpuBuffer<float> input(values.size()), output(values.size() * static_cast<std::size_t>(group.size()));
  gpuMemcpy(input.data(), values.data(), values.size());
  cudaStream_t stream = nullptr;
  MSCCLPP_CUDATHROW(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  // Not bytes(): those of the allocation, which are more.
  const auto execute = [&] {
    executor.execute(group.rank(), input.data(), output.data(), input.nelems() * sizeof(float),
                     output.nelems() * sizeof(float), DataType::FLOAT32, plan, stream);
  };
  execute();
  MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
  MSCCLPP_CUDATHROW(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  execute();
  cudaGraph_t graph = nullptr;
  MSCCLPP_CUDATHROW(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t replay = nullptr;
  MSCCLPP_CUDATHROW(cudaGraphInstantiate(&replay, graph, 0));
  for (int i = 0; i < 3; ++i) MSCCLPP_CUDATHROW(cudaGraphLaunch(replay, stream));
  MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
  executor.check();
  std::vector<float> result(output.nelems());
  gpuMemcpy(result.data(), output.data(), result.size());
  example::check(result, group.rank(), group.size());
  communicator->bootstrap()->barrier();  // no rank frees what the executor has while others still use it
  MSCCLPP_CUDATHROW(cudaGraphExecDestroy(replay));
  MSCCLPP_CUDATHROW(cudaGraphDestroy(graph));
  MSCCLPP_CUDATHROW(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(2, 8, argc, argv, gather);
}
