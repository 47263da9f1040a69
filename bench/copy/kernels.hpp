// The kernels that bench/copy compares: every GPU sends a message to each peer, by plain stores or by bulk copies.
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
struct Traffic {
  std::byte* to[maxPeers];
  const std::byte* from[maxPeers];
  int peers;
  std::size_t bytes;
  std::size_t turn;      ///< stores: a block sends this much to a peer, then to the next; drawn parts: their size
  BlockTimes* times;     ///< an entry a block, in GPU memory
  std::uint64_t* drawn;  ///< parts drawn so far, in GPU memory; 0 before other parts, messages or numbers of blocks
};

/// A way to send. enqueue starts it on `blocks` blocks.
struct Method {
  std::string name;
  std::function<void(const Traffic& traffic, int blocks, cudaStream_t stream)> enqueue;
};

/// Plain 16-byte stores by blocks of `threads` threads, `turn` bytes to a peer before the next.
Method stores(int threads, std::size_t turn);
/// The bulk copies that are compiled, a warp a queue; the first has the library's default shape.
std::vector<Method> bulkMethods();

/// Fills a message with what identifies its sender and receiver.
void fill(std::byte* message, std::size_t bytes, int sender, int receiver, cudaStream_t stream);
/// Adds the number of wrong 4-byte words of a message to *wrong, in GPU memory.
void countWrong(const std::byte* message, std::size_t bytes, int sender, int receiver, unsigned long long* wrong,
                cudaStream_t stream);

}  // namespace mscclpp::copybench
