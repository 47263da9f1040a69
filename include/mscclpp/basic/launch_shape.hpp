// The number of blocks and threads that a collective is launched with.
#pragma once

namespace mscclpp {

/// Blocks of a launch and threads per block. Tuning tables on hosts without CUDA use it too.
struct LaunchShape {
  int blocks;
  int threads;  ///< per block; on a GPU a multiple of 32, at most Collective::maxBlockThreads
};

}  // namespace mscclpp
