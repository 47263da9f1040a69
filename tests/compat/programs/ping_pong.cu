// Two GPUs send an array back and forth over a memory channel.
#include <mscclpp/core.hpp>
#include <mscclpp/gpu_utils.hpp>
#include <mscclpp/memory_channel.hpp>
#include <mscclpp/memory_channel_device.hpp>
#include <stdexcept>

#include "launch.hpp"

namespace {

constexpr int rounds = 50;
constexpr size_t nelems = 100003;  // with a remainder below 16 bytes

enum class PutVariant { OneOffset, TwoOffsets, Aligned };

// In round i the value at index j is i + j. Odd rounds go from rank 1 to rank 0. Each rank's send buffer is its upper
// half.
__global__ void pingPong(mscclpp::MemoryChannelDeviceHandle* channel, int* buffer, int rank, PutVariant variant,
                         int* wrong) {
  const size_t bytes = nelems * sizeof(int);
  const size_t half = (bytes + 15) / 16 * 16;
  int* received = buffer;
  int* sent = buffer + half / sizeof(int);
  for (int round = 0; round < rounds; ++round) {
    if (round % 2 == rank) {
      for (size_t j = threadIdx.x; j < nelems; j += blockDim.x) sent[j] = round + static_cast<int>(j);
      __syncthreads();
      if (variant == PutVariant::TwoOffsets) channel->put(0, half, bytes, threadIdx.x, blockDim.x);
      if (variant == PutVariant::Aligned) channel->put<16, false>(0, half, half, threadIdx.x, blockDim.x);
      if (variant == PutVariant::OneOffset) channel->put<4>(half, bytes, threadIdx.x, blockDim.x);
      __syncthreads();
      if (threadIdx.x == 0) channel->signal();
    } else {
      if (threadIdx.x == 0) channel->wait(-1);
      __syncthreads();
      const int* data = variant == PutVariant::OneOffset ? sent : received;
      for (size_t j = threadIdx.x; j < nelems; j += blockDim.x) {
        if (data[j] != round + static_cast<int>(j)) atomicAdd(wrong, 1);
      }
    }
    __syncthreads();
  }
}

__global__ void fetch(mscclpp::DeviceHandle<mscclpp::MemoryChannel> channel) {
  const size_t bytes = nelems * sizeof(int);
  // From the peer's upper half into the lower half here.
  channel.get<8, true>((bytes + 15) / 16 * 16, 0, bytes, threadIdx.x, blockDim.x);
}

void run(int rank, int nRanks, const std::string& address) {
  const int peer = 1 - rank;
  auto bootstrap = std::make_shared<mscclpp::TcpBootstrap>(rank, nRanks);
  bootstrap->initialize(address);
  mscclpp::Communicator comm(bootstrap);

  const auto transport = mscclpp::Transport::CudaIpc;
  auto connection = comm.connect({transport, {mscclpp::DeviceType::GPU, rank}}, peer).get();
  auto semaphore = comm.buildSemaphore(connection, peer).get();
  const size_t bytes = nelems * sizeof(int);
  const size_t half = (bytes + 15) / 16 * 16;
  mscclpp::GpuBuffer buffer(2 * half);
  auto local = comm.registerMemory(buffer.data(), buffer.bytes(), transport);
  comm.sendMemory(local, peer);
  auto remote = comm.recvMemory(peer).get();

  mscclpp::MemoryChannel channel(semaphore, /*dst*/ remote, /*src*/ local);
  auto handle = mscclpp::deviceHandle(channel);
  void* deviceHandle = nullptr;
  MSCCLPP_CUDATHROW(cudaMalloc(&deviceHandle, sizeof(handle)));
  MSCCLPP_CUDATHROW(cudaMemcpy(deviceHandle, &handle, sizeof(handle), cudaMemcpyHostToDevice));
  auto wrong = mscclpp::detail::gpuCallocHostShared<int>();

  for (PutVariant variant : {PutVariant::OneOffset, PutVariant::TwoOffsets, PutVariant::Aligned}) {
    bootstrap->barrier();
    pingPong<<<1, 512>>>(reinterpret_cast<mscclpp::MemoryChannelDeviceHandle*>(deviceHandle),
                         reinterpret_cast<int*>(buffer.data()), rank, variant, wrong.get());
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
    launch::require(*wrong == 0, "a wrong number arrived");
  }

  std::vector<int> numbers(nelems, 1000 + rank);
  mscclpp::gpuMemcpy<char>(buffer.data() + half, reinterpret_cast<char*>(numbers.data()), bytes,
                           cudaMemcpyHostToDevice);
  bootstrap->barrier();
  fetch<<<1, 256>>>(handle);
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  mscclpp::gpuMemcpy<char>(reinterpret_cast<char*>(numbers.data()), buffer.data(), bytes, cudaMemcpyDeviceToHost);
  for (int number : numbers) launch::require(number == 1000 + peer, "get brought a wrong number");
  MSCCLPP_CUDATHROW(cudaFree(deviceHandle));
  bootstrap->barrier();
}

}  // namespace

int main() {
  return launch::ranksOnGpus(2, 2, run);
}
