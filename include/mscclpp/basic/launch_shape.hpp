// The number of blocks and threads that a collective is launched with, and when its kernel starts.
#pragma once

namespace mscclpp {

/// Blocks of a launch and threads per block. Tuning tables on hosts without CUDA use it too.
struct LaunchShape {
  int blocks;
  int threads;  ///< per block; on a GPU a multiple of 32, at most Collective::maxBlockThreads
};

/// When a kernel starts that is enqueued behind another one.
enum class KernelStart {
  Early,   ///< perhaps before the previous one has ended; it then waits on the GPU, in blocks that are resident already
  InOrder  ///< when the previous one has ended
};

}  // namespace mscclpp
