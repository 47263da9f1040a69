// 07 on a GPU.
#include "gpu_example.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "service.hpp"

using namespace mscclpp;

namespace {

__global__ void requestKernel(FifoHandle fifo, unsigned int* served) {
  if (example::makeRequests(fifo)) atomicAdd(served, 1u);
}

void serve(ProcessGroup&) {
  constexpr int blocks = 8, threads = 64;
  example::CustomProxyService service(DeviceType::GPU);
  service.startProxy();
  const GpuBuffer<unsigned int> served(1);
  requestKernel<<<blocks, threads>>>(service.fifo(), served.data());
  MSCCLPP_CUDATHROW(cudaGetLastError());
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  service.stopProxy();
  unsigned int count = 0;
  gpuMemcpy(&count, served.data(), 1);
  constexpr int all = blocks * threads;
  example::require(count == all && service.ones() == all && service.twos() == all && service.deadbeefs() == all,
                   "requests were lost");
  std::printf("%d threads made 3 requests each: all served\n", all);
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(1, 1, argc, argv, serve);
}
