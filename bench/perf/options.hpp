// The command line of mscclpp-perf.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "mscclpp/basic/data_type.hpp"
#include "place.hpp"

namespace mscclpp::perf {

enum class Where { Auto, Gpu, Cpu };

struct Options {
  int ranks = 0;  ///< 0: every GPU, or 4 CPU ranks
  Where where = Where::Auto;
  std::vector<std::size_t> sizes;  ///< bytes of each message
  DataType type = DataType::FLOAT32;
  ReduceOp op = ReduceOp::SUM;
  std::vector<std::string> algorithms;  ///< empty: the library's choice; "all": each one that was set up
  Method method;
  bool inPlace = false;
  bool check = true;
  bool json = false;
  bool nccl = false;
  std::string ncclLibrary;
  std::string traceFile;  ///< empty: no trace
  int tracedCalls = 3;    ///< of each size and algorithm
};

/// Parses the arguments; on --help or a mistake prints what CLI11 says and returns false with the exit code in `code`.
bool parse(int argc, char** argv, Options& options, int& code);

}  // namespace mscclpp::perf
