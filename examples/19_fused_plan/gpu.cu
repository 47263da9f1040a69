// 19 on two GPUs, one rank per GPU.
#include "fused.hpp"
#include "gpu_example.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/kernel.cuh"

using namespace mscclpp;

namespace {

template <int rank>
__global__ void fused(plan::ExecutionArgs args, const float* values, float* input, float* output) {
  example::scaleReduceRoot<rank>(gpu::Grid(), args, values, input, output);
}

void run(ProcessGroup& group) {
  const auto communicator = std::make_shared<Communicator>(group.connect());
  Executor executor(communicator);
  const ExecutionPlan plan = example::loadOneShot(group.rank());
  const std::vector<float> hostValues = example::valuesOf(group.rank());
  const GpuBuffer<float> values(example::count), input(example::count), output(example::count);
  gpuMemcpy(values.data(), hostValues.data(), example::count);
  cudaStream_t stream = nullptr;
  MSCCLPP_CUDATHROW(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto launch = [&](const PlanKernel& kernel) {
    plan::withStaticRank<example::OneShot>(group.rank(), [&]<int rank>() {
      fused<rank><<<kernel.blocks, kernel.threads, 0, kernel.stream>>>(
          kernel.args, values.data(), static_cast<float*>(kernel.input), static_cast<float*>(kernel.output));
    });
    MSCCLPP_CUDATHROW(cudaGetLastError());
  };
  for (int call = 0; call < 3; ++call) {
    executor.execute(group.rank(), input.data(), output.data(), input.nelems() * sizeof(float),
                     output.nelems() * sizeof(float), DataType::FLOAT32, plan, stream, launch);
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
    executor.check();
    std::vector<float> result(example::count);
    gpuMemcpy(result.data(), output.data(), result.size());
    example::check(result, group.rank());
  }
  communicator->bootstrap()->barrier();  // no rank frees what the executor has while others still use it
  MSCCLPP_CUDATHROW(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(example::ranks, example::ranks, argc, argv, run);
}
