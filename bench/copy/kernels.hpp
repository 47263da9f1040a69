// The kernels that bench/copy compares: every GPU sends a message to each peer, by plain stores or bulk copies.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace mscclpp::copybench {

inline constexpr int maxPeers = 31;

/// When a block began and ended, in nanoseconds.
struct BlockTimes {
  std::uint64_t begin;
  std::uint64_t end;
};

/// One message to each of `peers` peers, `bytes` bytes each.
struct AllToAllArgs {
  std::byte* to[maxPeers];
  const std::byte* from[maxPeers];
  int peers;
  std::size_t bytes;
  std::size_t chunkBytes;  ///< stores: bytes that a block sends to a peer before the next; dynamic parts: their size
  BlockTimes* times;       ///< one entry per block, in GPU memory
  std::uint64_t*
      workCounter;  ///< parts taken so far, in GPU memory; zero it before the parts, messages or blocks change
};

/// A method to send. enqueue launches it on `blocks` blocks.
struct CopyMethod {
  std::string name;
  std::function<void(const AllToAllArgs& args, int blocks, cudaStream_t stream)> enqueue;
};

/// Plain 16-byte stores by blocks of `threads` threads, which send `chunkBytes` bytes to a peer before the next.
CopyMethod stores(int threads, std::size_t chunkBytes);
/// The compiled bulk copies, one warp per queue; the first has the library's default shape.
std::vector<CopyMethod> bulkMethods();

/// Fills a message with a pattern that identifies its sender and receiver.
void fill(std::byte* message, std::size_t bytes, int sender, int receiver, cudaStream_t stream);
/// Adds the number of wrong 4-byte words of a message to *wrong, in GPU memory.
void countWrong(const std::byte* message, std::size_t bytes, int sender, int receiver, unsigned long long* wrong,
                cudaStream_t stream);

}  // namespace mscclpp::copybench
