// Where the pushers run: a GPU, or CPU threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "pusher.hpp"

namespace mscclpp::bench {

/// One line of the table.
struct Case {
  Form form;
  Publish publish;
  bool wide;
  bool sync;
  int blocks;
  int threads;
  int fifos;
  int fifoSize;
  int popsPerReport;
  int dirtyWords;
  int pushes;
};

struct Result {
  double nanosecondsPerPush;      ///< of block 0's first pusher
  double triggersPerMicrosecond;  ///< of all pushers together, by the host's clock
};

/// Runs a case once. Throws what the proxy throws.
Result runOnGpu(const Case& each);
Result runOnCpu(const Case& each);

/// The GPU's name; empty if there is none.
std::string gpuName();

}  // namespace mscclpp::bench
