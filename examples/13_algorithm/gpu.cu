// 13 on GPUs, one rank per GPU. The calls are executed once, which sets both algorithms up, and then captured in a
// graph that is replayed.
#include "gpu_example.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "small_sums.hpp"

using namespace mscclpp;

namespace {

__global__ void __launch_bounds__(256)
    smallSumsKernel(const __grid_constant__ example::SmallSums::Args args, const float* input, float* output) {
  example::SmallSums::run(gpu::Grid(), args, ArraySource<float>(input), ArraySink<float>(output));
}

void launchSmallSums(const example::SmallSums::Args& args, const float* input, float* output, LaunchShape shape,
                     CUstream_st* stream) {
  smallSumsKernel<<<shape.blocks, shape.threads, 0, stream>>>(args, input, output);
  MSCCLPP_CUDATHROW(cudaGetLastError());
}

void reduce(ProcessGroup& group) {
  const auto communicator = std::make_shared<Communicator>(group.connect());
  const AlgorithmCollection collection = example::makeCollection(DeviceType::GPU, launchSmallSums);
  cudaStream_t stream = nullptr;
  MSCCLPP_CUDATHROW(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const example::Call& call : example::calls) {
    std::vector<float> values(call.count);
    for (std::size_t i = 0; i < call.count; ++i) values[i] = example::inputAt(i, group.rank());
    const GpuBuffer<float> input(call.count), output(call.count);
    gpuMemcpy(input.data(), values.data(), values.size());
    const auto allReduce = [&] {
      return example::allReduce(collection, communicator, input.data(), output.data(), call.count, call.op, stream);
    };
    allReduce();
    MSCCLPP_CUDATHROW(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    const std::string selected = allReduce();
    cudaGraph_t graph = nullptr;
    MSCCLPP_CUDATHROW(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t replay = nullptr;
    MSCCLPP_CUDATHROW(cudaGraphInstantiate(&replay, graph, 0));
    for (int i = 0; i < 3; ++i) {
      MSCCLPP_CUDATHROW(cudaMemsetAsync(output.data(), 0, output.bytes(), stream));
      MSCCLPP_CUDATHROW(cudaGraphLaunch(replay, stream));
      MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
      gpuMemcpy(values.data(), output.data(), values.size());
      example::check(call, selected, values, i == 0 ? group.rank() : -1, group.size());
    }
    MSCCLPP_CUDATHROW(cudaGraphExecDestroy(replay));
    MSCCLPP_CUDATHROW(cudaGraphDestroy(graph));
  }
  communicator->bootstrap()->barrier();  // no rank frees its scratch while others still read it
  MSCCLPP_CUDATHROW(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(2, 8, argc, argv, reduce);
}
