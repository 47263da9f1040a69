// Two GPUs of one process, without a bootstrap: endpoints, stubs and memories are passed as objects.
#include <mscclpp/core.hpp>
#include <mscclpp/gpu_utils.hpp>
#include <mscclpp/memory_channel.hpp>
#include <mscclpp/memory_channel_device.hpp>
#include <mscclpp/semaphore.hpp>
#include <stdexcept>

#include "launch.hpp"

namespace {

constexpr int nelems = 1000;
constexpr int rounds = 100;

// Rank 0 sends in even rounds, rank 1 in odd ones; received values are sent back incremented by 1.
__global__ void pingPong(mscclpp::DeviceHandle<mscclpp::MemoryChannel>* channel, int rank, int* wrong) {
  int* numbers = reinterpret_cast<int*>(channel->src_);
  if (threadIdx.x == 0) {
    channel->relaxedSignal();
    channel->relaxedWait();
  }
  __syncthreads();
  for (int round = 0; round < rounds; ++round) {
    if (round % 2 == rank) {
      for (int i = threadIdx.x; i < nelems; i += blockDim.x) numbers[i] += 1;
      __syncthreads();
      channel->put(0, nelems * sizeof(int), threadIdx.x, blockDim.x);
      __syncthreads();
      if (threadIdx.x == 0) channel->signal();
    } else {
      if (threadIdx.x == 0) channel->wait(-1);
      __syncthreads();
      for (int i = threadIdx.x; i < nelems; i += blockDim.x) {
        if (numbers[i] != round + 1) atomicAdd(wrong, 1);
      }
    }
  }
}

__global__ void waitForHost(mscclpp::Host2DeviceSemaphoreDeviceHandle semaphore, int signals, int* wrong) {
  for (int i = 0; i < signals; ++i) semaphore.wait();
  const auto count = static_cast<uint64_t>(signals);
  if (*semaphore.inboundToken != count || *semaphore.expectedInboundToken != count) atomicAdd(wrong, 1);
}

template <typename Allocate>
void runPingPong(const Allocate& allocate) {
  auto context = mscclpp::Context::create();
  const auto transport = mscclpp::Transport::CudaIpc;
  mscclpp::Endpoint endpoints[2];
  for (int gpu : {0, 1}) endpoints[gpu] = context->createEndpoint({transport, {mscclpp::DeviceType::GPU, gpu}});
  std::vector<mscclpp::Connection> connections;
  std::vector<mscclpp::SemaphoreStub> stubs, hostStubs;
  std::vector<std::shared_ptr<int>> buffers;
  std::vector<mscclpp::RegisteredMemory> memories;
  for (int gpu : {0, 1}) {
    MSCCLPP_CUDATHROW(cudaSetDevice(gpu));
    connections.push_back(context->connect(/*localEndpoint*/ endpoints[gpu], /*remoteEndpoint*/ endpoints[1 - gpu]));
    stubs.emplace_back(connections[gpu]);
    hostStubs.emplace_back(connections[gpu]);
    buffers.push_back(allocate());
    memories.push_back(context->registerMemory(buffers[gpu].get(), nelems * sizeof(int), transport));
  }
  auto wrong = mscclpp::detail::gpuCallocHostShared<int>();
  std::vector<mscclpp::MemoryChannel> channels;
  std::vector<mscclpp::Host2DeviceSemaphore> hostSemaphores;
  std::vector<std::shared_ptr<mscclpp::DeviceHandle<mscclpp::MemoryChannel>>> handles;
  for (int gpu : {0, 1}) {
    MSCCLPP_CUDATHROW(cudaSetDevice(gpu));
    channels.emplace_back(mscclpp::Semaphore(stubs[gpu], stubs[1 - gpu]), memories[1 - gpu], memories[gpu]);
    hostSemaphores.emplace_back(mscclpp::Semaphore(hostStubs[gpu], hostStubs[1 - gpu]));
    const auto handle = channels[gpu].deviceHandle();
    handles.push_back(mscclpp::detail::gpuCallocShared<mscclpp::DeviceHandle<mscclpp::MemoryChannel>>());
    mscclpp::gpuMemcpy(handles[gpu].get(), &handle, 1, cudaMemcpyHostToDevice);
  }
  for (int gpu : {0, 1}) {
    MSCCLPP_CUDATHROW(cudaSetDevice(gpu));
    pingPong<<<1, 128>>>(handles[gpu].get(), gpu, wrong.get());
    MSCCLPP_CUDATHROW(cudaGetLastError());
  }
  for (int gpu : {0, 1}) {
    MSCCLPP_CUDATHROW(cudaSetDevice(gpu));
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  }
  launch::require(*wrong == 0, "a wrong number arrived");
  for (int i = 0; i < 3; ++i) hostSemaphores[0].signal();
  waitForHost<<<1, 1>>>(hostSemaphores[1].deviceHandle(), 3, wrong.get());
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  launch::require(*wrong == 0, "the host's signals were counted wrongly");
}

void run(int, int, const std::string&) {
  runPingPong([] { return mscclpp::GpuBuffer<int>(nelems).memory(); });
  runPingPong([] { return mscclpp::detail::gpuCallocShared<int>(nelems); });
}

}  // namespace

int main() {
  return launch::onGpus(2, [](int) { return launch::runRanks(1, run); });
}
