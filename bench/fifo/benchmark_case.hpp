// A case of the FIFO benchmark, whose pushers are threads of a GPU or of the CPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "pusher.hpp"

namespace mscclpp::bench {

/// The parameters of one line of the table.
struct BenchmarkCase {
  PushGranularity granularity;
  ReleaseScope releaseScope;
  bool wide;
  bool sync;
  int blocks;
  int threads;
  int fifos;
  int fifoSize;
  int popsPerTailUpdate;
  int dirtyWords;
  int pushes;
};

struct Result {
  double nanosecondsPerPush;      ///< of block 0's first pusher
  double triggersPerMicrosecond;  ///< of all pushers together, measured on the host
};

/// Runs a case once. Throws what the proxy throws.
Result runOnGpu(const BenchmarkCase& benchmarkCase);
Result runOnCpu(const BenchmarkCase& benchmarkCase);

/// The GPU's name; empty if there is none.
std::string gpuName();

}  // namespace mscclpp::bench
