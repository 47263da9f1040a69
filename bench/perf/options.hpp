// The command line of mscclpp-perf.
#pragma once

#include <cstddef>
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

/// Parses the arguments. On --help or an invalid option prints CLI11's message and returns false, with the exit code in
/// `code`.
bool parse(int argc, char** argv, Options& options, int& code);

}  // namespace mscclpp::perf
