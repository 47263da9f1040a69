// An all-gather over port channels: the proxy of each rank copies its part to every other rank. The kernel is that of
// MSCCL++'s guide for PyTorch.
#include <algorithm>
#include <iterator>
#include <mscclpp/core.hpp>
#include <mscclpp/gpu_utils.hpp>
#include <mscclpp/port_channel.hpp>
#include <mscclpp/port_channel_device.hpp>
#include <stdexcept>

#include "launch.hpp"

namespace {

__global__ void allgather(mscclpp::DeviceHandle<mscclpp::PortChannel>* channels, int rank, int worldSize,
                          size_t nbytesPerGPU) {
  const int warp = threadIdx.x / 32;
  if (warp >= worldSize - 1 || threadIdx.x % 32 != 0) return;
  auto& channel = channels[warp];
  channel.putWithSignal(rank * nbytesPerGPU, nbytesPerGPU);
  channel.flush();
  channel.wait();
}

__constant__ mscclpp::DeviceHandle<mscclpp::PortChannel> constantChannels[8];

// The same with the handles in constant memory and a single combined call.
__global__ void allgatherConstant(int rank, int worldSize, uint64_t nbytesPerGPU) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= worldSize - 1) return;
  constantChannels[i].putWithSignalAndFlush(rank * nbytesPerGPU, rank * nbytesPerGPU, nbytesPerGPU);
  while (!constantChannels[i].poll()) {
  }
}

void run(int rank, int worldSize, const std::string& address) {
  auto bootstrap = std::make_shared<mscclpp::TcpBootstrap>(rank, worldSize);
  bootstrap->initialize(address);
  auto comm = std::make_shared<mscclpp::Communicator>(bootstrap);

  constexpr size_t nelemsPerGPU = 50021;
  const size_t nbytesPerGPU = nelemsPerGPU * sizeof(int);
  mscclpp::GpuBuffer<int> buffer(nelemsPerGPU * worldSize);
  auto localMemory = comm->registerMemory(buffer.data(), buffer.bytes(), mscclpp::Transport::CudaIpc);

  std::vector<std::shared_future<mscclpp::Connection>> connectionFutures;
  std::vector<std::shared_future<mscclpp::RegisteredMemory>> memoryFutures;
  for (int peer = 0; peer < worldSize; ++peer) {
    if (peer == rank) continue;
    connectionFutures.push_back(comm->connect(mscclpp::Transport::CudaIpc, peer));
    comm->sendMemory(localMemory, peer);
    memoryFutures.push_back(comm->recvMemory(peer));
  }
  auto proxyService = std::make_shared<mscclpp::ProxyService>();
  const mscclpp::MemoryId localId = proxyService->addMemory(localMemory);
  std::vector<mscclpp::PortChannel> channels;
  for (size_t i = 0; i < connectionFutures.size(); ++i) {
    const auto semaphoreId = proxyService->buildAndAddSemaphore(*comm, connectionFutures[i].get());
    channels.push_back(
        proxyService->portChannel(semaphoreId, proxyService->addMemory(memoryFutures[i].get()), localId));
  }
  launch::require(proxyService->nextMemoryId() == static_cast<unsigned>(worldSize), "ids count up");
  std::vector<mscclpp::DeviceHandle<mscclpp::PortChannel>> handles;
  std::transform(channels.begin(), channels.end(), std::back_inserter(handles),
                 [](const mscclpp::PortChannel& channel) { return mscclpp::deviceHandle(channel); });
  const size_t handleBytes = handles.size() * sizeof(handles[0]);
  auto deviceHandles = mscclpp::detail::gpuCallocShared<mscclpp::DeviceHandle<mscclpp::PortChannel>>(handles.size());
  mscclpp::gpuMemcpy(deviceHandles.get(), handles.data(), handles.size(), cudaMemcpyHostToDevice);
  MSCCLPP_CUDATHROW(cudaMemcpyToSymbol(constantChannels, handles.data(), handleBytes));

  proxyService->startProxy();
  std::vector<int> numbers(nelemsPerGPU * worldSize);
  for (int call = 0; call < 20; ++call) {
    std::fill(numbers.begin(), numbers.end(), -1);
    for (size_t i = 0; i < nelemsPerGPU; ++i) numbers[rank * nelemsPerGPU + i] = 1000 * call + 17 * rank + i % 11;
    mscclpp::gpuMemcpy(buffer.data(), numbers.data(), numbers.size(), cudaMemcpyHostToDevice);
    bootstrap->barrier();
    if (call % 2 == 0) {
      allgather<<<1, 32 * worldSize>>>(deviceHandles.get(), rank, worldSize, nbytesPerGPU);
    } else {
      allgatherConstant<<<1, 32>>>(rank, worldSize, nbytesPerGPU);
    }
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
    mscclpp::gpuMemcpy(numbers.data(), buffer.data(), numbers.size(), cudaMemcpyDeviceToHost);
    for (int from = 0; from < worldSize; ++from) {
      for (size_t i = 0; i < nelemsPerGPU; ++i) {
        launch::require(numbers[from * nelemsPerGPU + i] == static_cast<int>(1000 * call + 17 * from + i % 11),
                        "a wrong number was gathered");
      }
    }
    bootstrap->barrier();
  }
  proxyService->stopProxy();
  bootstrap->barrier();
}

}  // namespace

int main() {
  return launch::ranksOnGpus(2, 8, run);
}
