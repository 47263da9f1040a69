#include "kernels.hpp"
#include "mscclpp/arch/clock.hpp"
#include "mscclpp/basic/bulk_copy.hpp"
#include "mscclpp/basic/copy.hpp"
#include "mscclpp/basic/drawn_parts.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/gpu.hpp"

namespace mscclpp::copybench {

namespace {

/// Notes in traffic.times when the block began and, once all its threads have come here, when it ended.
class BlockTimer {
 public:
  __device__ BlockTimer() : begin_(arch::nanoseconds()) {}
  __device__ void stop(const Traffic& traffic, const gpu::Grid& grid) const {
    grid.block().sync();
    if (grid.block().rank() == 0) traffic.times[grid.blockIndex()] = {begin_, arch::nanoseconds()};
  }

 private:
  std::uint64_t begin_;
};

/// What worker `index` of `count` sends of each message.
__device__ Range shareOf(const Traffic& traffic, int index, int count) {
  const std::size_t share = roundUp(ceilDivide(traffic.bytes, static_cast<std::size_t>(count)), 128);
  return steppedPart(traffic.bytes, share, static_cast<std::size_t>(index));
}

/// The order of peers, begun with another one by each worker.
class Rotation {
 public:
  __device__ Rotation(int peers, int worker) : peers_(peers), first_(worker % peers) {}
  __device__ int peer(int i) const {
    const int peer = i + first_;
    return peer < peers_ ? peer : peer - peers_;
  }

 private:
  int peers_;
  int first_;
};

__global__ void __launch_bounds__(1024, 1) sendByStores(const __grid_constant__ Traffic traffic) {
  const gpu::Grid grid;
  const BlockTimer timer;
  const Range mine = shareOf(traffic, grid.blockIndex(), grid.blockCount());
  const Rotation rotation(traffic.peers, grid.blockIndex());
  for (std::size_t at = mine.begin; at < mine.end; at += traffic.turn) {
    const std::size_t bytes = at + traffic.turn < mine.end ? traffic.turn : mine.end - at;
    for (int i = 0; i < traffic.peers; ++i) {
      const int peer = rotation.peer(i);
      copy(grid.block(), traffic.to[peer] + at, traffic.from[peer] + at, bytes);
    }
  }
  timer.stop(traffic, grid);
}

/// Queues a part of each message.
template <class Copier, class Wait>
__device__ void queuePart(Copier& copier, const Traffic& traffic, const Rotation& rotation, const Range& part,
                          Wait& wait) {
  const auto regionAt = [&](int i) {
    const int peer = rotation.peer(i);
    return CopyRegion{traffic.to[peer] + part.begin, traffic.from[peer] + part.begin, part.size()};
  };
  copier.copyInTurns(gpu::WarpTile<>(), traffic.peers, regionAt, wait);
}

/// Each warp has a queue, and its share of the messages.
template <class Copier, int queues>
__global__ void __launch_bounds__(32 * queues, 1) sendInBulk(const __grid_constant__ Traffic traffic) {
  const gpu::Grid grid;
  const BlockTimer timer;
  const int worker = grid.blockIndex() * queues + grid.warpIndex();
  BoundedWait wait(nullptr, 10'000'000'000u);
  Copier copier(grid.warp(), reinterpret_cast<typename Copier::Scratch*>(grid.sharedMemory())[grid.warpIndex()]);
  queuePart(copier, traffic, Rotation(traffic.peers, worker), shareOf(traffic, worker, grid.blockCount() * queues),
            wait);
  copier.finish(grid.warp(), wait);
  timer.stop(traffic, grid);
}

/// The warps draw parts of the messages until there are none.
template <class Copier, int queues>
__global__ void __launch_bounds__(32 * queues, 1) sendDrawnInBulk(const __grid_constant__ Traffic traffic) {
  const gpu::Grid grid;
  const BlockTimer timer;
  const auto warp = grid.warp();
  BoundedWait wait(nullptr, 10'000'000'000u);
  Copier copier(warp, reinterpret_cast<typename Copier::Scratch*>(grid.sharedMemory())[grid.warpIndex()]);
  const Rotation rotation(traffic.peers, grid.blockIndex() * queues + grid.warpIndex());
  const auto parts = static_cast<std::uint32_t>(ceilDivide(traffic.bytes, traffic.turn));
  forEachDrawnPart(warp, traffic.drawn, parts, static_cast<std::uint32_t>(grid.blockCount() * queues),
                   [&](std::uint32_t part) {
                     queuePart(copier, traffic, rotation, steppedPart(traffic.bytes, traffic.turn, part), wait);
                   });
  copier.finish(warp, wait);
  timer.stop(traffic, grid);
}

std::string kilobytes(std::size_t bytes) {
  return std::to_string(bytes / 1024) + "K";
}

std::string describe(const BulkShape& shape, int queues) {
  return "bulk " + std::to_string(queues) + " x " + std::to_string(shape.pieces) + " x " +
         kilobytes(static_cast<std::size_t>(shape.bytes)) + ", " + std::to_string(shape.ahead) + " ahead, turns of " +
         kilobytes(static_cast<std::size_t>(shape.turn * shape.bytes));
}

void enqueueInBulk(void (*kernel)(Traffic), const Traffic& traffic, int blocks, int queues, std::size_t sharedBytes,
                   cudaStream_t stream) {
  MSCCLPP_CUDATHROW(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(sharedBytes)));
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(32 * queues), sharedBytes, stream>>>(traffic);
  MSCCLPP_CUDATHROW(cudaGetLastError());
}

template <BulkShape shape, int queues = 1>
Method bulk() {
  static_assert(queues * sizeof(BulkScratch<shape>) <= 227 << 10, "more shared memory than a block of sm_90 may have");
  return {describe(shape, queues), [](const Traffic& traffic, int blocks, cudaStream_t stream) {
            enqueueInBulk(sendInBulk<BulkCopier<shape>, queues>, traffic, blocks, queues,
                          queues * sizeof(BulkScratch<shape>), stream);
          }};
}

/// part: how much of each message a warp draws at a time.
template <BulkShape shape, int queues = 1>
Method bulkDrawn(std::size_t part) {
  return {describe(shape, queues) + ", drawn by " + kilobytes(part),
          [=](Traffic traffic, int blocks, cudaStream_t stream) {
            traffic.turn = part;
            enqueueInBulk(sendDrawnInBulk<BulkCopier<shape>, queues>, traffic, blocks, queues,
                          queues * sizeof(BulkScratch<shape>), stream);
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

Method stores(int threads, std::size_t turn) {
  return {"stores, " + std::to_string(threads) + " threads, turns of " + kilobytes(turn),
          [=](Traffic traffic, int blocks, cudaStream_t stream) {
            traffic.turn = turn;
            sendByStores<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream>>>(traffic);
            MSCCLPP_CUDATHROW(cudaGetLastError());
          }};
}

std::vector<Method> bulkMethods() {
  return {
      bulk<BulkShape{}>(),
      // How much goes to one peer before the next.
      bulk<BulkShape{.turn = 2}>(),
      bulk<BulkShape{.turn = 4}>(),
      bulk<BulkShape{.turn = 16}>(),
      // How much is in flight, and how much of it on the way in.
      bulk<BulkShape{.ahead = 4}>(),
      bulk<BulkShape{.ahead = 8}>(),
      bulk<BulkShape{.pieces = 14, .ahead = 5}>(),
      bulk<BulkShape{.pieces = 6, .ahead = 3}>(),
      // The size of pieces.
      bulk<BulkShape{.bytes = 8 << 10, .pieces = 24, .ahead = 12}>(),
      bulk<BulkShape{.bytes = 8 << 10, .pieces = 24, .ahead = 12, .turn = 2}>(),
      bulk<BulkShape{.bytes = 32 << 10, .pieces = 7, .ahead = 3}>(),
      // Queues a block: several threads feed the engine, with different peers at once.
      bulk<BulkShape{.pieces = 6, .ahead = 3}, 2>(),
      bulk<BulkShape{.pieces = 7, .ahead = 3}, 2>(),
      bulk<BulkShape{.pieces = 4, .ahead = 2}, 3>(),
      bulk<BulkShape{.bytes = 8 << 10, .pieces = 12, .ahead = 6}, 2>(),
      bulk<BulkShape{.bytes = 8 << 10, .pieces = 8, .ahead = 4}, 3>(),
      bulk<BulkShape{.bytes = 8 << 10, .pieces = 8, .ahead = 4, .turn = 32}, 3>(),
      // Who is done takes over from those that are not.
      bulkDrawn<BulkShape{}>(128 << 10),
      bulkDrawn<BulkShape{.pieces = 6, .ahead = 3}, 2>(128 << 10),
  };
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
