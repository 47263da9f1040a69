#include "kernels.hpp"
#include "mscclpp/basic/bulk_copy.hpp"
#include "mscclpp/basic/copy.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/gpu.hpp"

namespace mscclpp::copybench {

namespace {

/// Calls send(to, from, bytes) for this block's share of each message, a turn to each peer after the other. Blocks begin with different peers.
template <class Send>
__device__ void takeTurns(const Traffic& traffic, const gpu::Grid& grid, const Send& send) {
  const auto blocks = static_cast<std::size_t>(grid.blockCount());
  const std::size_t share = roundUp(ceilDivide(traffic.bytes, blocks), 128);
  const Range mine = steppedPart(traffic.bytes, share, static_cast<std::size_t>(grid.blockIndex()));
  for (std::size_t at = mine.begin; at < mine.end; at += traffic.turn) {
    const std::size_t bytes = at + traffic.turn < mine.end ? traffic.turn : mine.end - at;
    for (int i = 0; i < traffic.peers; ++i) {
      const int peer = (i + grid.blockIndex()) % traffic.peers;
      send(traffic.to[peer] + at, traffic.from[peer] + at, bytes);
    }
  }
}

__global__ void __launch_bounds__(1024, 1) sendByStores(const __grid_constant__ Traffic traffic) {
  const gpu::Grid grid;
  takeTurns(traffic, grid,
            [&](std::byte* to, const std::byte* from, std::size_t bytes) { copy(grid.block(), to, from, bytes); });
}

template <class Copier>
__global__ void __launch_bounds__(32, 1) sendInBulk(const __grid_constant__ Traffic traffic) {
  const gpu::Grid grid;
  const auto block = grid.block();
  BoundedWait wait(nullptr, 10'000'000'000u);
  Copier copier(block, *reinterpret_cast<typename Copier::Scratch*>(grid.sharedMemory()));
  takeTurns(traffic, grid, [&](std::byte* to, const std::byte* from, std::size_t bytes) {
    copier.copy(block, to, from, bytes, wait);
  });
  copier.finish(block, wait);
}

template <BulkShape shape>
Method bulk() {
  return {
      "bulk " + std::to_string(shape.bytes / 1024) + "K x " + std::to_string(shape.pieces) + ", " +
          std::to_string(shape.ahead) + " ahead",
      [](const Traffic& traffic, int blocks, cudaStream_t stream) {
        using Copier = BulkCopier<shape>;
        constexpr auto bytes = sizeof(typename Copier::Scratch);
        MSCCLPP_CUDATHROW(cudaFuncSetAttribute(sendInBulk<Copier>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
        sendInBulk<Copier><<<static_cast<unsigned>(blocks), 32, bytes, stream>>>(traffic);
        MSCCLPP_CUDATHROW(cudaGetLastError());
      }};
}

__device__ std::uint32_t word(std::size_t index, int sender, int receiver) {
  std::uint32_t x =
      static_cast<std::uint32_t>(index) * 2654435761u + static_cast<std::uint32_t>(sender * 64 + receiver);
  x ^= x >> 15;
  return x * 2246822519u;
}

__global__ void fillWords(std::uint32_t* message, std::size_t words, int sender, int receiver) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
    message[i] = word(i, sender, receiver);
}

__global__ void countWrongWords(const std::uint32_t* message, std::size_t words, int sender, int receiver,
                                unsigned long long* wrong) {
  unsigned long long found = 0;
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
    found += message[i] != word(i, sender, receiver);
  if (found != 0) atomicAdd(wrong, found);
}

}  // namespace

Method stores(int threads) {
  return {"stores, " + std::to_string(threads) + " threads",
          [threads](const Traffic& traffic, int blocks, cudaStream_t stream) {
            sendByStores<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream>>>(traffic);
            MSCCLPP_CUDATHROW(cudaGetLastError());
          }};
}

std::vector<Method> bulkMethods() {
  return {bulk<BulkShape{}>(),
          bulk<BulkShape{.bytes = 16 << 10, .pieces = 12, .ahead = 3}>(),
          bulk<BulkShape{.bytes = 16 << 10, .pieces = 12, .ahead = 4}>(),
          bulk<BulkShape{.bytes = 16 << 10, .pieces = 12, .ahead = 8}>(),
          bulk<BulkShape{.bytes = 8 << 10, .pieces = 24, .ahead = 12}>(),
          bulk<BulkShape{.bytes = 32 << 10, .pieces = 6, .ahead = 3}>(),
          bulk<BulkShape{.bytes = 16 << 10, .pieces = 6, .ahead = 3}>()};
}

void fill(std::byte* message, std::size_t bytes, int sender, int receiver, cudaStream_t stream) {
  fillWords<<<256, 256, 0, stream>>>(reinterpret_cast<std::uint32_t*>(message), bytes / 4, sender, receiver);
  MSCCLPP_CUDATHROW(cudaGetLastError());
}

void countWrong(const std::byte* message, std::size_t bytes, int sender, int receiver, unsigned long long* wrong,
                cudaStream_t stream) {
  countWrongWords<<<256, 256, 0, stream>>>(reinterpret_cast<const std::uint32_t*>(message), bytes / 4, sender, receiver,
                                           wrong);
  MSCCLPP_CUDATHROW(cudaGetLastError());
}

}  // namespace mscclpp::copybench
