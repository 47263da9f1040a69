// Registration of GPU buffers, of every kind of memory: kernels write into the buffers of all ranks. The ranks use one
// GPU each as far as there are as many, and share them otherwise.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/registered_buffer.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "tests/host/process_resources.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr int slotWords = 1000;
constexpr int poison = -77;

__global__ void fill(Window<> window, int ranks, int rank, int first) {
  for (int owner = 0; owner < ranks; ++owner) {
    auto* slot = reinterpret_cast<int*>(window.at(owner)) + rank * slotWords;
    for (int i = static_cast<int>(threadIdx.x); i < slotWords; i += static_cast<int>(blockDim.x)) {
      slot[i] = first + 10 * owner + rank;
    }
  }
}

void useGpuOf(const Bootstrap& bootstrap) {
  int gpus = 0;
  MSCCLPP_CUDATHROW(cudaGetDeviceCount(&gpus));
  MSCCLPP_CUDATHROW(cudaSetDevice(bootstrap.getRank() % gpus));
}

// In words; differs over the ranks and is not aligned to more than a word.
std::size_t offsetOf(int rank) {
  return static_cast<std::size_t>(5 + 3 * rank);
}

// `memory` has two slots per rank. Kernels write into a part of it that begins at another offset on each rank.
RegisteredBuffer writeEverywhere(Bootstrap& bootstrap, Communicator& communicator, int* memory, int round) {
  const int rank = bootstrap.getRank();
  const int nRanks = bootstrap.getNranks();
  const std::size_t words = static_cast<std::size_t>(2 * nRanks * slotWords);
  std::vector<int> expected(words, poison);
  gpuMemcpy(memory, expected.data(), words);
  RegisteredBuffer buffer(communicator, memory + offsetOf(rank), words / 2 * sizeof(int));
  CHECK(buffer.isAllocated());
  buffer.requireEqualBytes();
  bootstrap.barrier();
  fill<<<1, 256>>>(buffer.window(), nRanks, rank, 1000 * round);
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  bootstrap.barrier();
  for (int writer = 0; writer < nRanks; ++writer) {
    const auto first = expected.begin() + static_cast<std::ptrdiff_t>(offsetOf(rank)) + writer * slotWords;
    std::fill_n(first, slotWords, 1000 * round + 10 * rank + writer);
  }
  std::vector<int> written(words);
  gpuMemcpy(written.data(), static_cast<const int*>(memory), words);
  CHECK(written == expected);
  bootstrap.barrier();
  return buffer;
}

void registerEveryKind(Bootstrap& bootstrap, Communicator& communicator) {
  const std::size_t words = static_cast<std::size_t>(2 * bootstrap.getNranks() * slotWords);
  const GpuBuffer<int> physical(words);
  writeEverywhere(bootstrap, communicator, physical.data(), 1);
  const auto plain = detail::gpuCallocShared<int>(words);
  writeEverywhere(bootstrap, communicator, plain.get(), 2);
  // Small allocations, which the driver places next to each other.
  const auto left = detail::gpuCallocShared<int>(16);
  const auto right = detail::gpuCallocShared<int>(16);
  const RegisteredBuffer leftBuffer(communicator, left.get(), 64);
  const RegisteredBuffer rightBuffer(communicator, right.get(), 64);
  const int next = (bootstrap.getRank() + 1) % bootstrap.getNranks();
  const std::vector<int> values{bootstrap.getRank(), 100 + bootstrap.getRank()};
  gpuMemcpy(static_cast<int*>(leftBuffer.peer(next)) + 15, values.data(), 1);
  gpuMemcpy(static_cast<int*>(rightBuffer.peer(next)) + 15, values.data() + 1, 1);
  bootstrap.barrier();
  const int previous = (bootstrap.getRank() + bootstrap.getNranks() - 1) % bootstrap.getNranks();
  std::vector<int> received(2);
  gpuMemcpy(received.data(), left.get() + 15, 1);
  gpuMemcpy(received.data() + 1, right.get() + 15, 1);
  CHECK(received == std::vector<int>{previous, 100 + previous});
  bootstrap.barrier();
}

// A part of memory that is registered already lies in the mapping that exists.
template <class Memory>
void registerParts(Bootstrap& bootstrap, Communicator& communicator, const Memory& memory) {
  auto* data = reinterpret_cast<char*>(memory);
  const auto rank = static_cast<std::size_t>(bootstrap.getRank());
  std::optional<RegisteredBuffer> whole(std::in_place, communicator, data, 4096);
  const RegisteredBuffer part(communicator, data + 256 * rank, 512);
  Communicator second(communicator.bootstrap());
  const RegisteredBuffer other(second, data + 256 * rank + 4, 64);
  for (int peer = 0; peer < bootstrap.getNranks(); ++peer) {
    CHECK(part.peer(peer) == static_cast<char*>(whole->peer(peer)) + 256 * peer);
    CHECK(other.peer(peer) == static_cast<char*>(part.peer(peer)) + 4);
  }
  whole.reset();
  bootstrap.barrier();
  const int next = (bootstrap.getRank() + 1) % bootstrap.getNranks();
  gpuMemcpy(static_cast<int*>(part.peer(next)), &next, 1);
  bootstrap.barrier();
  int received = -1;
  gpuMemcpy(&received, reinterpret_cast<const int*>(data + 256 * rank), 1);
  CHECK(received == bootstrap.getRank());
  bootstrap.barrier();
}

// The next allocation usually gets the address of the one before. Peers may keep cuMem memory mapped that its owner has
// freed, but not memory of cudaMalloc.
void freeAndAllocateAgain(Bootstrap& bootstrap, Communicator& communicator) {
  const std::size_t words = static_cast<std::size_t>(2 * bootstrap.getNranks() * slotWords);
  std::vector<RegisteredBuffer> kept;
  for (int round = 0; round < 4; ++round) {
    const GpuBuffer<int> memory(words);
    for (const RegisteredBuffer& old : kept) CHECK_FALSE(old.isAllocated());
    kept.push_back(writeEverywhere(bootstrap, communicator, memory.data(), round));
  }
  for (int round = 0; round < 4; ++round) {
    const auto memory = detail::gpuCallocShared<int>(words);
    writeEverywhere(bootstrap, communicator, memory.get(), round);
  }
  bootstrap.barrier();
}

template <class Call>
void expectObstacle(Communicator& communicator, const std::string& text, const Call& memoryOf) {
  void* data = memoryOf(communicator.bootstrap()->getRank());
  CHECK_FALSE(RegisteredBuffer::tryRegister(communicator, data, 4096).has_value());
  CHECK_THROWS_WITH_AS(RegisteredBuffer(communicator, data, 4096), doctest::Contains(text.c_str()), Error);
}

void refuseOtherMemory(Bootstrap& bootstrap, Communicator& communicator) {
  const GpuBuffer<char> good(4096);
  const auto onlyOn1 = [&](void* bad) {
    return [&good, bad](int rank) -> void* { return rank == 1 ? bad : good.data(); };
  };

  void* pooled = nullptr;
  MSCCLPP_CUDATHROW(cudaMallocAsync(&pooled, 4096, nullptr));
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  expectObstacle(communicator, "rank 1 cannot share its buffer: registerMemory: this GPU memory cannot be shared",
                 onlyOn1(pooled));
  MSCCLPP_CUDATHROW(cudaFreeAsync(pooled, nullptr));
  void* managed = nullptr;
  MSCCLPP_CUDATHROW(cudaMallocManaged(&managed, 4096));
  expectObstacle(communicator, "rank 1 cannot share its buffer: registerMemory: Transport::CudaIpc needs GPU memory",
                 onlyOn1(managed));
  MSCCLPP_CUDATHROW(cudaFree(managed));
  std::vector<char> plain(4096);
  expectObstacle(communicator, "rank 1 cannot share its buffer: registerMemory: Transport::SharedMemory needs memory",
                 onlyOn1(plain.data()));

  const HostBuffer host(4096);
  void* mixed = bootstrap.getRank() == 1 ? host.data() : good.data();
  CHECK_THROWS_WITH_AS(RegisteredBuffer(communicator, mixed, 64),
                       doctest::Contains("rank 0 passes GPU memory, and rank 1 host memory"), Error);
  const auto exact = detail::gpuCallocShared<char>(4 << 20);
  CHECK_THROWS_WITH_AS(RegisteredBuffer(communicator, exact.get() + 1, 4 << 20), doctest::Contains("exceed"), Error);
  const RegisteredBuffer afterwards(communicator, good.data(), 4096);
  bootstrap.barrier();
}

void everything(const std::shared_ptr<Bootstrap>& bootstrap) {
  useGpuOf(*bootstrap);
  Communicator communicator(bootstrap);
  registerEveryKind(*bootstrap, communicator);
  const GpuBuffer<char> physical(4096);
  registerParts(*bootstrap, communicator, physical.data());
  const auto plain = detail::gpuCallocShared<char>(4096);
  registerParts(*bootstrap, communicator, plain.get());
  freeAndAllocateAgain(*bootstrap, communicator);
  refuseOtherMemory(*bootstrap, communicator);
  bootstrap->barrier();
}

}  // namespace

TEST_CASE("ranks as threads register GPU buffers") {
  runAsThreads(2, everything);
}
TEST_CASE("ranks as processes register GPU buffers") {
  runAsProcesses(2, "one process registers GPU buffers", std::chrono::seconds(100));
}
TEST_CASE("one process registers GPU buffers" * doctest::skip()) {
  const auto bootstrap = bootstrapOfProcess();
  everything(bootstrap);  // the driver's descriptors and threads exist from here on
  bootstrap->barrier();
  const std::size_t descriptors = openDescriptors();
  const std::size_t threads = liveThreads();
  everything(bootstrap);
  CHECK(openDescriptors() == descriptors);
  CHECK(threadCountReturnsTo(threads));
}

TEST_CASE("a registration tells that its memory was freed") {
  runAsThreads(1, [](const std::shared_ptr<Bootstrap>& bootstrap) {
    useGpuOf(*bootstrap);
    Communicator communicator(bootstrap);
    const auto expectFreed = [&](const auto& allocate) {
      auto memory = allocate();
      const RegisteredBuffer buffer(communicator, static_cast<char*>(memory.get()) + 100, 100);
      CHECK(buffer.isAllocated());
      const void* address = memory.get();
      memory.reset();
      CHECK_FALSE(buffer.isAllocated());
      memory = allocate();
      WARN(memory.get() == address);  // otherwise the next check shows nothing
      CHECK_FALSE(buffer.isAllocated());
      CHECK(RegisteredBuffer(communicator, memory.get(), 100).isAllocated());
    };
    expectFreed([] { return GpuBuffer<char>(4 << 20).memory(); });
    expectFreed([] { return detail::gpuCallocShared<char>(4 << 20); });
  });
}
