// The command line of mscclpp-perf.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "backend.hpp"
#include "mscclpp/basic/data_type.hpp"

namespace mscclpp::perf {

enum class DeviceSelection { Auto, Gpu, Cpu };

struct Options {
  int ranks = 0;  ///< 0: every GPU, or 4 CPU ranks
  DeviceSelection device = DeviceSelection::Auto;
  std::vector<std::size_t> sizes;  ///< bytes of each message
  DataType type = DataType::FLOAT32;
  ReduceOp op = ReduceOp::SUM;
  std::vector<std::string> algorithms;  ///< empty: chosen by size; "all": every algorithm that is set up
  TimingOptions timing;
  bool inPlace = false;
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
