// The command line of mscclpp-perf.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend.hpp"
#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/kernels/collective_call.hpp"

namespace mscclpp::perf {

enum class DeviceSelection { Auto, Gpu, Cpu };

/// What is timed; docs/benchmarks.md says how.
enum class TimingMode {
  Steady,   ///< calls one after the other, on the same buffers
  Skewed,   ///< single calls, which the ranks enter at random times
  Rotated,  ///< each call on other buffers, which are not in the L2 cache
  Between   ///< calls between a kernel that writes the input and one that reads the output
};

constexpr const char* nameOf(TimingMode mode) {
  switch (mode) {
    case TimingMode::Steady:
      return "steady";
    case TimingMode::Skewed:
      return "skewed";
    case TimingMode::Rotated:
      return "rotated";
    case TimingMode::Between:
      return "between";
  }
  return "unknown";
}

struct Options {
  CollectiveType collective = CollectiveType::AllReduce;
  int ranks = 0;  ///< 0: every GPU, or 4 CPU ranks
  DeviceSelection device = DeviceSelection::Auto;
  bool oneGpu = false;               ///< all ranks share the first GPU
  std::vector<std::uint64_t> sizes;  ///< bytes; collective_shape.hpp says of what
  DataType type = DataType::FLOAT32;
  ReduceOp op = ReduceOp::SUM;
  int root = 0;
  std::vector<std::string> algorithms;  ///< empty: chosen by size; "all": every algorithm that is set up
  std::vector<std::string> plans;       ///< files of execution plans that are also measured
  TimingMode mode = TimingMode::Steady;
  TimingOptions timing;
  bool inPlace = false;
  std::string tuningFile;   ///< to write the fastest algorithms to; empty: none
  int maxBlocks = 0;        ///< of a kernel; 0: as many as are fastest
  bool exchange = false;    ///< also measure an exchange of the same messages
  bool registered = false;  ///< also measure with buffers that all ranks have registered
  bool check = true;
  bool json = false;
  bool nccl = false;
  std::string ncclLibrary;
  std::string traceFile;  ///< empty: no trace
  int tracedCalls = 3;    ///< of each size and algorithm
};

/// On --help or an invalid option prints the help or the reason, and returns the exit code of the program.
std::optional<int> parse(int argc, char** argv, Options& options);

}  // namespace mscclpp::perf
