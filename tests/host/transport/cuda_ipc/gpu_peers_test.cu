// GPU memory between GPUs, one rank per GPU: mappings in every direction, channels of kernels, and waits that fail.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "mscclpp/basic/bulk_copy.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/channel/host_semaphore.hpp"
#include "mscclpp/host/channel/memory_channel.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

int gpus() {
  int count = 0;
  MSCCLPP_CUDATHROW(cudaGetDeviceCount(&count));
  return std::min(count, 8);
}

template <typename T>
std::vector<T> onHost(const void* data, std::size_t count) {
  std::vector<T> host(count);
  gpuMemcpy(host.data(), static_cast<const T*>(data), count);
  return host;
}

__global__ void store(int* where, int value) {
  *where = value;
}

void writeEverywhere(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  const int nRanks = bootstrap->getNranks();
  MSCCLPP_CUDATHROW(cudaSetDevice(rank));
  Communicator communicator(bootstrap);
  const SymmetricMemory memory(communicator, std::size_t{3} << 20, DeviceType::GPU);
  // And cudaMalloc memory, exchanged explicitly.
  const auto plain = detail::gpuCallocShared<int>(static_cast<std::size_t>(nRanks));
  const auto registered =
      communicator.registerMemory(plain.get(), static_cast<std::size_t>(nRanks) * sizeof(int), Transport::CudaIpc);
  std::vector<std::shared_future<RegisteredMemory>> receiving;
  for (int peer = 0; peer < nRanks; ++peer) {
    communicator.sendMemory(registered, peer);
    receiving.push_back(communicator.recvMemory(peer));
  }
  for (int peer = 0; peer < nRanks; ++peer) {
    store<<<1, 1>>>(static_cast<int*>(memory.peer(peer)) + rank, 100 * peer + rank);
    const auto remote = receiving[static_cast<std::size_t>(peer)].get();
    store<<<1, 1>>>(static_cast<int*>(remote.data()) + rank, 200 * peer + rank);
  }
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  bootstrap->barrier();
  const auto part = onHost<int>(memory.local(), static_cast<std::size_t>(nRanks));
  const auto other = onHost<int>(plain.get(), static_cast<std::size_t>(nRanks));
  for (int writer = 0; writer < nRanks; ++writer) {
    CHECK(part[static_cast<std::size_t>(writer)] == 100 * rank + writer);
    CHECK(other[static_cast<std::size_t>(writer)] == 200 * rank + writer);
  }
  bootstrap->barrier();
}

// Each round: fill own memory, put it to the peer, signal, wait, compare the received data.
__global__ void exchange(MemoryChannelHandle channel, int* source, const int* target, int nelems, int rounds, int rank,
                         int* wrong) {
  const int tid = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  for (int round = 0; round < rounds; ++round) {
    for (int i = tid; i < nelems; i += threads) source[i] = 1000 * round + 2 * i + rank;
    __syncthreads();
    channel.put(0, static_cast<std::uint64_t>(nelems) * sizeof(int), threadIdx.x, blockDim.x);
    __syncthreads();
    if (tid == 0) {
      channel.signal();
      if (!channel.wait()) atomicAdd(wrong, 1);
    }
    __syncthreads();
    for (int i = tid; i < nelems; i += threads) {
      if (target[i] != 1000 * round + 2 * i + 1 - rank) atomicAdd(wrong, 1);
    }
    __syncthreads();
    // Only after this may the peer overwrite the data that was read here.
    if (tid == 0) {
      channel.signal();
      if (!channel.wait()) atomicAdd(wrong, 1);
    }
    __syncthreads();
  }
}

// Each round: fill own memory, copy it to the peer with the bulk copy engine, signal, wait, compare the received data.
__global__ void exchangeInBulk(MemoryChannelHandle channel, std::uint32_t* source, const std::uint32_t* target,
                               std::size_t words, int rounds, int rank, int* wrong) {
  const gpu::Block block;
  BoundedWait wait(channel.semaphore_.waitControl, channel.semaphore_.waitTimeout);
  BulkCopier<> copier(block, *reinterpret_cast<BulkScratch<>*>(gpu::Grid().sharedMemory()));
  const auto syncWithPeer = [&] {
    block.sync();
    if (block.rank() == 0) {
      channel.signal();
      if (!channel.wait()) atomicAdd(wrong, 1);
    }
    block.sync();
  };
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = block.rank(); i < words; i += block.size())
      source[i] = static_cast<std::uint32_t>(1'000'003 * round + 2 * i + rank);
    block.sync();
    // In two parts, the second not aligned for the engine.
    const std::size_t part = words / 3 * sizeof(std::uint32_t);
    auto* to = static_cast<std::byte*>(channel.dst_);
    const auto* from = static_cast<const std::byte*>(channel.src_);
    copier.copy(block, to, from, part, wait);
    copier.copy(block, to + part, from + part, words * sizeof(std::uint32_t) - part, wait);
    if (!copier.flush(block, wait)) atomicAdd(wrong, 1);
    syncWithPeer();
    for (std::size_t i = block.rank(); i < words; i += block.size()) {
      if (target[i] != static_cast<std::uint32_t>(1'000'003 * round + 2 * i + 1 - rank)) atomicAdd(wrong, 1);
    }
    syncWithPeer();  // only after this may the peer overwrite the data read here
  }
  if (!copier.finish(block, wait)) atomicAdd(wrong, 1);
}

void copyInBulk(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  const int peer = 1 - rank;
  MSCCLPP_CUDATHROW(cudaSetDevice(rank));
  Communicator communicator(bootstrap);
  constexpr std::size_t words = 1'234'567;
  const GpuBuffer<std::uint32_t> source(words);
  const GpuBuffer<std::uint32_t> target(words);
  const GpuBuffer<int> wrong(1);
  const auto local = communicator.registerMemory(source.data(), source.bytes(), Transport::CudaIpc);
  const auto inbox = communicator.registerMemory(target.data(), target.bytes(), Transport::CudaIpc);
  auto connection = communicator.connect(Transport::CudaIpc, peer).get();
  communicator.sendMemory(inbox, peer);
  const auto outbox = communicator.recvMemory(peer).get();
  const MemoryChannel channel(communicator.buildSemaphore(connection, peer).get(), outbox, local);
  constexpr auto shared = sizeof(BulkScratch<>);
  MSCCLPP_CUDATHROW(cudaFuncSetAttribute(exchangeInBulk, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  bootstrap->barrier();
  exchangeInBulk<<<1, 256, shared>>>(channel.deviceHandle(), source.data(), target.data(), words, 50, rank,
                                     wrong.data());
  MSCCLPP_CUDATHROW(cudaGetLastError());
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  communicator.monitor(DeviceType::GPU)->check();
  CHECK(onHost<int>(wrong.data(), 1)[0] == 0);
  bootstrap->barrier();
}

__global__ void waitOnce(BaseMemoryChannelHandle channel, int* result) {
  *result = channel.wait() ? 1 : 2;
}
__global__ void waitForHost(Host2DeviceSemaphoreHandle semaphore, const int* data, int* result) {
  *result = semaphore.wait() ? *data : -1;
}

void useChannels(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  const int peer = 1 - rank;
  MSCCLPP_CUDATHROW(cudaSetDevice(rank));
  Communicator communicator(bootstrap);
  constexpr int nelems = 5000;
  const GpuBuffer<int> source(nelems);
  const GpuBuffer<int> target(nelems);
  const GpuBuffer<int> wrong(1);
  const auto local = communicator.registerMemory(source.data(), source.bytes(), Transport::CudaIpc);
  const auto inbox = communicator.registerMemory(target.data(), target.bytes(), Transport::CudaIpc);
  auto connection = communicator.connect(Transport::CudaIpc, peer).get();
  communicator.sendMemory(inbox, peer);
  const auto outbox = communicator.recvMemory(peer).get();
  const MemoryChannel channel(communicator.buildSemaphore(connection, peer).get(), outbox, local);
  Host2DeviceSemaphore hostSignals(communicator, connection);
  bootstrap->barrier();
  exchange<<<1, 256>>>(channel.deviceHandle(), source.data(), target.data(), nelems, 100, rank, wrong.data());
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  communicator.monitor(DeviceType::GPU)->check();
  CHECK(onHost<int>(wrong.data(), 1)[0] == 0);

  // The host copies and signals; the peer's kernel, which is already waiting, sees the data.
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  gpuMemset(wrong.data(), 0, sizeof(int));
  waitForHost<<<1, 1, 0, stream>>>(hostSignals.deviceHandle(), target.data(), wrong.data());
  const int value = 4711 + rank;
  gpuMemcpy(source.data(), &value, 1);
  bootstrap->barrier();
  connection.write(outbox, 0, local, 0, sizeof(int));
  hostSignals.signal();
  connection.flush();
  MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
  CHECK(onHost<int>(wrong.data(), 1)[0] == 4711 + peer);

  // A signal that is never sent: the host ends the wait, and the kernel returns.
  const BaseMemoryChannel silent(communicator.buildSemaphore(connection, peer).get());
  bootstrap->barrier();
  waitOnce<<<1, 1, 0, stream>>>(silent.deviceHandle(), wrong.data());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  communicator.abort();
  const auto start = std::chrono::steady_clock::now();
  MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
  CHECK(onHost<int>(wrong.data(), 1)[0] == 2);
  CHECK_THROWS_WITH_AS(communicator.monitor(DeviceType::GPU)->check(), doctest::Contains("a signal"), Error);
  bootstrap->barrier();
}

}  // namespace

TEST_CASE("every GPU accesses every part, ranks as threads") {
  runAsThreads(gpus(), writeEverywhere);
}
TEST_CASE("every GPU accesses every part, ranks as processes") {
  runAsProcesses(gpus(), "one process writes everywhere");
}
TEST_CASE("one process writes everywhere" * doctest::skip()) {
  writeEverywhere(bootstrapOfProcess());
}

TEST_CASE("channels between GPUs, ranks as threads") {
  runAsThreads(2, useChannels);
}
TEST_CASE("channels between GPUs, ranks as processes") {
  runAsProcesses(2, "one process uses channels");
}
TEST_CASE("one process uses channels" * doctest::skip()) {
  useChannels(bootstrapOfProcess());
}

TEST_CASE("bulk copies between GPUs, ranks as threads") {
  runAsThreads(2, copyInBulk);
}
TEST_CASE("bulk copies between GPUs, ranks as processes") {
  runAsProcesses(2, "one process copies in bulk");
}
TEST_CASE("one process copies in bulk" * doctest::skip()) {
  copyInBulk(bootstrapOfProcess());
}
