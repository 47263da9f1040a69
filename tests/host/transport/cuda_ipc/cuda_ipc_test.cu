// GPU memory between ranks that share a GPU, as processes and as threads: both kinds of handle, and connections.
#include <doctest/doctest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/channel/memory_semaphore.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "tests/host/process_resources.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

__global__ void fill(int* data, int nelems, int first) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < nelems) data[i] = first + i;
}

constexpr int nelems = 100000;

std::vector<int> onHost(const void* data, int count) {
  std::vector<int> host(static_cast<std::size_t>(count));
  gpuMemcpy(host.data(), static_cast<const int*>(data), host.size());
  return host;
}

std::vector<int> counting(int first) {
  std::vector<int> values(nelems);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// Each rank's kernel writes into a peer's memory: the first half through a mapping of the allocation, the second half
// through a second registration at an offset, which must use the same mapping.
void shareMemory(Bootstrap& bootstrap, Communicator& communicator, void* data, bool sameProcess) {
  const int rank = bootstrap.getRank();
  const int peer = 1 - rank;
  const auto whole = communicator.registerMemory(data, 2 * nelems * sizeof(int), Transport::CudaIpc);
  const auto half =
      communicator.registerMemory(static_cast<int*>(data) + nelems, nelems * sizeof(int), Transport::CudaIpc);
  communicator.sendMemory(whole, peer);
  communicator.sendMemory(half, peer);
  const auto remoteWhole = communicator.recvMemory(peer).get();
  const auto remoteHalf = communicator.recvMemory(peer).get();
  auto* theirs = static_cast<int*>(remoteWhole.data());
  REQUIRE(theirs != nullptr);
  CHECK(remoteHalf.data() == theirs + nelems);
  CHECK((remoteWhole.data() == remoteWhole.originalDataPtr()) == sameProcess);
  fill<<<(nelems + 255) / 256, 256>>>(theirs, nelems, 10 * rank);
  fill<<<(nelems + 255) / 256, 256>>>(static_cast<int*>(remoteHalf.data()), nelems, 1000 + rank);
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  bootstrap.barrier();
  CHECK(onHost(data, nelems) == counting(10 * peer));
  CHECK(onHost(static_cast<int*>(data) + nelems, nelems) == counting(1000 + peer));
  bootstrap.barrier();
}

void shareBothKinds(std::shared_ptr<Bootstrap> bootstrap, bool sameProcess) {
  Communicator communicator(bootstrap);
  const GpuBuffer<int> physical(2 * nelems);
  shareMemory(*bootstrap, communicator, physical.data(), sameProcess);
  const auto plain = detail::gpuCallocShared<int>(2 * nelems);
  shareMemory(*bootstrap, communicator, plain.get(), sameProcess);
  // The same address again, for other memory: no stale mapping is used.
  for (int i = 0; i < 5; ++i) {
    const GpuBuffer<int> next(2 * nelems);
    shareMemory(*bootstrap, communicator, next.data(), sameProcess);
  }
}

void copyOverConnection(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  const int peer = 1 - rank;
  Communicator communicator(bootstrap);
  auto connection = communicator.connect(Transport::CudaIpc, peer).get();
  CHECK(connection.localDevice().id >= 0);
  const GpuBuffer<int> source(nelems);
  const GpuBuffer<int> target(nelems + 2);
  const auto values = counting(7 * (rank + 1));
  gpuMemcpy(source.data(), values.data(), values.size());
  const auto local = communicator.registerMemory(source.data(), source.bytes(), Transport::CudaIpc);
  const auto inbox = communicator.registerMemory(target.data(), target.bytes(), Transport::CudaIpc);
  communicator.sendMemory(inbox, peer);
  const auto outbox = communicator.recvMemory(peer).get();
  std::uint64_t counter = 0;
  static_assert(nelems % 2 == 0, "the counter behind the data is aligned");
  for (std::uint64_t round = 1; round <= 50; ++round) {
    connection.write(outbox, 0, local, 0, nelems * sizeof(int));
    connection.updateAndSync(outbox, nelems * sizeof(int), &counter, round);
  }
  connection.flush();
  connection.flush(0);
  CHECK(counter == 50);
  bootstrap->barrier();
  CHECK(onHost(target.data(), nelems) == counting(7 * (peer + 1)));
  CHECK(onHost(target.data() + nelems, 2) == std::vector<int>{50, 0});

  HostBuffer host(64);
  const auto hostMemory = communicator.registerMemory(host.data(), 64, Transport::SharedMemory);
  CHECK_THROWS_AS(connection.write(outbox, 0, hostMemory, 0, 64), Error);
  MemoryDevice2DeviceSemaphore semaphore(communicator, connection);
  CHECK(semaphore.deviceHandle().waitControl == communicator.monitor(DeviceType::GPU)->deviceControl());
  bootstrap->barrier();
}

void makeSymmetricMemory(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  Communicator communicator(bootstrap);
  const SymmetricMemory memory(communicator, nelems * sizeof(int), DeviceType::GPU);
  for (int peer = 0; peer < memory.nRanks(); ++peer) {
    fill<<<1, 1>>>(static_cast<int*>(memory.peer(peer)) + rank, 1, 100 * peer + rank);
  }
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  bootstrap->barrier();
  CHECK(onHost(memory.local(), 2) == std::vector<int>{100 * rank, 100 * rank + 1});
  bootstrap->barrier();
}

void everything(std::shared_ptr<Bootstrap> bootstrap, bool sameProcess) {
  MSCCLPP_CUDATHROW(cudaSetDevice(0));
  shareBothKinds(bootstrap, sameProcess);
  copyOverConnection(bootstrap);
  makeSymmetricMemory(bootstrap);
}

}  // namespace

TEST_CASE("ranks as threads share GPU memory") {
  runAsThreads(2, [](auto bootstrap) { everything(bootstrap, true); });
}
TEST_CASE("ranks as processes share GPU memory") {
  runAsProcesses(2, "one process shares GPU memory");
}
TEST_CASE("one process shares GPU memory" * doctest::skip()) {
  auto bootstrap = bootstrapOfProcess();
  everything(bootstrap, false);  // the driver's descriptors and threads exist from here on
  bootstrap->barrier();
  const std::size_t descriptors = openDescriptors();
  const std::size_t threads = liveThreads();
  everything(bootstrap, false);
  CHECK(openDescriptors() == descriptors);
  CHECK(threadCountReturnsTo(threads));
}
