#include "kernels.hpp"
#include "mscclpp/arch/clock.hpp"
#include "mscclpp/basic/bulk_copy.hpp"
#include "mscclpp/basic/copy.hpp"
#include "mscclpp/basic/dynamic_parts.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::copybench {

namespace {

/// Records in args.times when the block began and when its last thread finished.
class BlockTimer {
 public:
  __device__ BlockTimer() : begin_(arch::nanoseconds()) {}
  __device__ void stop(const AllToAllArgs& args, const gpu::Grid& grid) const {
    grid.block().sync();
    if (grid.block().rank() == 0) args.times[grid.blockIndex()] = {begin_, arch::nanoseconds()};
  }

 private:
  std::uint64_t begin_;
};

/// The range of each message that worker `index` of `count` sends.
__device__ Range shareOf(const AllToAllArgs& args, int index, int count) {
  const std::size_t share = roundUp(ceilDivide(args.bytes, static_cast<std::size_t>(count)), 128);
  return steppedPart(args.bytes, share, static_cast<std::size_t>(index));
}

/// The order of peers, rotated by the worker's index.
class PeerRotation {
 public:
  __device__ PeerRotation(int peers, int worker) : peers_(peers), first_(worker % peers) {}
  __device__ int peer(int i) const {
    const int peer = i + first_;
    return peer < peers_ ? peer : peer - peers_;
  }

 private:
  int peers_;
  int first_;
};

__global__ void __launch_bounds__(1024, 1) sendWithStores(const __grid_constant__ AllToAllArgs args) {
  const gpu::Grid grid;
  const BlockTimer timer;
  const Range mine = shareOf(args, grid.blockIndex(), grid.blockCount());
  const PeerRotation rotation(args.peers, grid.blockIndex());
  for (std::size_t at = mine.begin; at < mine.end; at += args.chunkBytes) {
    const std::size_t bytes = at + args.chunkBytes < mine.end ? args.chunkBytes : mine.end - at;
    for (int i = 0; i < args.peers; ++i) {
      const int peer = rotation.peer(i);
      copy(grid.block(), args.to[peer] + at, args.from[peer] + at, bytes);
    }
  }
  timer.stop(args, grid);
}

/// Queues the copies of a range of each message.
template <class Copier, class Wait>
__device__ void enqueuePart(Copier& copier, const AllToAllArgs& args, const PeerRotation& rotation, const Range& part,
                            Wait& wait) {
  const auto regionAt = [&](int i) {
    const int peer = rotation.peer(i);
    return CopyRegion{args.to[peer] + part.begin, args.from[peer] + part.begin, part.size()};
  };
  copier.copyRoundRobin(gpu::WarpTile<>(), args.peers, regionAt, wait);
}

/// Each warp has a queue, and an equal share of the messages.
template <class Copier, int queues>
__global__ void __launch_bounds__(32 * queues, 1) sendWithBulkCopies(const __grid_constant__ AllToAllArgs args) {
  const gpu::Grid grid;
  const BlockTimer timer;
  const int worker = grid.blockIndex() * queues + grid.warpIndex();
  BoundedWait wait(nullptr, 10'000'000'000u);
  Copier copier(grid.warp(), reinterpret_cast<typename Copier::Scratch*>(grid.sharedMemory())[grid.warpIndex()]);
  enqueuePart(copier, args, PeerRotation(args.peers, worker), shareOf(args, worker, grid.blockCount() * queues), wait);
  copier.finish(grid.warp(), wait);
  timer.stop(args, grid);
}

/// Dynamic scheduling: the warps take parts of the messages from a work counter until none are left.
template <class Copier, int queues>
__global__ void __launch_bounds__(32 * queues, 1) sendWithBulkCopiesDynamic(const __grid_constant__ AllToAllArgs args) {
  const gpu::Grid grid;
  const BlockTimer timer;
  const auto warp = grid.warp();
  BoundedWait wait(nullptr, 10'000'000'000u);
  Copier copier(warp, reinterpret_cast<typename Copier::Scratch*>(grid.sharedMemory())[grid.warpIndex()]);
  const PeerRotation rotation(args.peers, grid.blockIndex() * queues + grid.warpIndex());
  const auto parts = static_cast<std::uint32_t>(ceilDivide(args.bytes, args.chunkBytes));
  forEachDynamicPart(warp, args.workCounter, parts, static_cast<std::uint32_t>(grid.blockCount() * queues),
                     [&](std::uint32_t part) {
                       enqueuePart(copier, args, rotation, steppedPart(args.bytes, args.chunkBytes, part), wait);
                     });
  copier.finish(warp, wait);
  timer.stop(args, grid);
}

std::string kilobytes(std::size_t bytes) {
  return std::to_string(bytes / 1024) + "K";
}

std::string describe(const BulkCopyConfig& shape, int queues) {
  return "bulk " + std::to_string(queues) + " x " + std::to_string(shape.chunks) + " x " +
         kilobytes(static_cast<std::size_t>(shape.chunkBytes)) + ", " + std::to_string(shape.prefetchDepth) +
         " prefetched, quantum " + kilobytes(static_cast<std::size_t>(shape.quantum * shape.chunkBytes));
}

void enqueueBulkKernel(void (*kernel)(AllToAllArgs), const AllToAllArgs& args, int blocks, int queues,
                       std::size_t sharedBytes, cudaStream_t stream) {
  MSCCLPP_CUDATHROW(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(sharedBytes)));
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(32 * queues), sharedBytes, stream>>>(args);
  MSCCLPP_CUDATHROW(cudaGetLastError());
}

template <BulkCopyConfig shape, int queues = 1>
CopyMethod bulk() {
  static_assert(queues * sizeof(BulkScratch<shape>) <= 227 << 10, "more shared memory than a block of sm_90 may have");
  return {describe(shape, queues), [](const AllToAllArgs& args, int blocks, cudaStream_t stream) {
            enqueueBulkKernel(sendWithBulkCopies<BulkCopier<shape>, queues>, args, blocks, queues,
                              queues * sizeof(BulkScratch<shape>), stream);
          }};
}

/// part: bytes of each message that a warp takes at a time.
template <BulkCopyConfig shape, int queues = 1>
CopyMethod bulkDynamic(std::size_t part) {
  return {describe(shape, queues) + ", dynamic parts of " + kilobytes(part),
          [=](AllToAllArgs args, int blocks, cudaStream_t stream) {
            args.chunkBytes = part;
            enqueueBulkKernel(sendWithBulkCopiesDynamic<BulkCopier<shape>, queues>, args, blocks, queues,
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

CopyMethod stores(int threads, std::size_t chunkBytes) {
  return {"stores, " + std::to_string(threads) + " threads, chunks of " + kilobytes(chunkBytes),
          [=](AllToAllArgs args, int blocks, cudaStream_t stream) {
            args.chunkBytes = chunkBytes;
            sendWithStores<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream>>>(args);
            MSCCLPP_CUDATHROW(cudaGetLastError());
          }};
}

std::vector<CopyMethod> bulkMethods() {
  return {
      bulk<BulkCopyConfig{}>(),
      // Quantum: bytes to one peer before the next.
      bulk<BulkCopyConfig{.quantum = 2}>(),
      bulk<BulkCopyConfig{.quantum = 4}>(),
      bulk<BulkCopyConfig{.quantum = 16}>(),
      // Chunks in flight, and how many of them are being loaded.
      bulk<BulkCopyConfig{.prefetchDepth = 4}>(),
      bulk<BulkCopyConfig{.prefetchDepth = 8}>(),
      bulk<BulkCopyConfig{.chunks = 14, .prefetchDepth = 5}>(),
      bulk<BulkCopyConfig{.chunks = 6, .prefetchDepth = 3}>(),
      // The size of chunks.
      bulk<BulkCopyConfig{.chunkBytes = 8 << 10, .chunks = 24, .prefetchDepth = 12}>(),
      bulk<BulkCopyConfig{.chunkBytes = 8 << 10, .chunks = 24, .prefetchDepth = 12, .quantum = 2}>(),
      bulk<BulkCopyConfig{.chunkBytes = 32 << 10, .chunks = 7, .prefetchDepth = 3}>(),
      // Queues per block: several threads feed the engine, for different peers at once.
      bulk<BulkCopyConfig{.chunks = 6, .prefetchDepth = 3}, 2>(),
      bulk<BulkCopyConfig{.chunks = 7, .prefetchDepth = 3}, 2>(),
      bulk<BulkCopyConfig{.chunks = 4, .prefetchDepth = 2}, 3>(),
      bulk<BulkCopyConfig{.chunkBytes = 8 << 10, .chunks = 12, .prefetchDepth = 6}, 2>(),
      bulk<BulkCopyConfig{.chunkBytes = 8 << 10, .chunks = 8, .prefetchDepth = 4}, 3>(),
      bulk<BulkCopyConfig{.chunkBytes = 8 << 10, .chunks = 8, .prefetchDepth = 4, .quantum = 32}, 3>(),
      // Dynamic scheduling.
      bulkDynamic<BulkCopyConfig{}>(128 << 10),
      bulkDynamic<BulkCopyConfig{.chunks = 6, .prefetchDepth = 3}, 2>(128 << 10),
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
