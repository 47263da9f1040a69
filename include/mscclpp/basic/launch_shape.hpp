// How many blocks and threads a collective is launched with.
#pragma once

namespace mscclpp {

/// Plain values, so that a tuning table needs no CUDA.
struct LaunchShape {
  int blocks;
  int threads;  ///< a block; on a GPU a multiple of 32, Collective::maxBlockThreads at most
};

}  // namespace mscclpp
