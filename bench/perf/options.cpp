// The command line of mscclpp-perf, by CLI11.
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <map>

namespace mscclpp::perf {

namespace {

const std::map<std::string, DataType>& types() {
  static const std::map<std::string, DataType> names{{"int8", DataType::INT8},
                                                     {"uint8", DataType::UINT8},
                                                     {"int16", DataType::INT16},
                                                     {"uint16", DataType::UINT16},
                                                     {"int32", DataType::INT32},
                                                     {"uint32", DataType::UINT32},
                                                     {"int64", DataType::INT64},
                                                     {"uint64", DataType::UINT64},
                                                     {"half", DataType::FLOAT16},
                                                     {"bfloat16", DataType::BFLOAT16},
                                                     {"float", DataType::FLOAT32},
                                                     {"double", DataType::FLOAT64},
                                                     {"fp8_e4m3", DataType::FLOAT8_E4M3FN},
                                                     {"fp8_e5m2", DataType::FLOAT8_E5M2}};
  return names;
}

const std::map<std::string, ReduceOp>& operators() {
  static const std::map<std::string, ReduceOp> names{{"sum", ReduceOp::SUM},
                                                     {"prod", ReduceOp::PROD},
                                                     {"min", ReduceOp::MIN},
                                                     {"max", ReduceOp::MAX},
                                                     {"avg", ReduceOp::AVG}};
  return names;
}

template <class Map, class Value>
std::string keyOf(const Map& names, Value value) {
  for (const auto& [name, each] : names) {
    if (each == value) return name;
  }
  return "?";
}

}  // namespace

std::string nameOf(DataType type) {
  return keyOf(types(), type);
}
std::string nameOf(ReduceOp op) {
  return keyOf(operators(), op);
}

bool parse(int argc, char** argv, Options& options, int& code) {
  CLI::App app{"Times and checks collectives over all GPUs of this machine, or over CPU ranks."};
  app.require_subcommand(1);
  CLI::App* allReduce = app.add_subcommand("all_reduce", "every rank gets the reduction of all ranks' inputs");
  std::uint64_t begin = 1024;
  std::uint64_t end = 64 << 20;
  double factor = 2;
  std::vector<std::uint64_t> sizes;
  const CLI::AsSizeValue bytes(false);
  allReduce->add_option("-n,--ranks", options.ranks, "how many ranks to start; default: one a GPU, or 4 on CPUs")
      ->check(CLI::Range(1, 64));
  allReduce->add_option("--device", options.where, "auto, gpu or cpu")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, Where>{{"auto", Where::Auto}, {"gpu", Where::Gpu}, {"cpu", Where::Cpu}}));
  allReduce->add_option("-b,--begin", begin, "smallest message in bytes, as in 1K")->transform(bytes);
  allReduce->add_option("-e,--end", end, "largest message in bytes")->transform(bytes);
  allReduce->add_option("-f,--factor", factor, "from one size to the next")->check(CLI::Range(1.01, 1e6));
  allReduce->add_option("--sizes", sizes, "these sizes instead, as in 1K,384K,48M")->delimiter(',')->transform(bytes);
  allReduce->add_option("-d,--datatype", options.type, "element type")->transform(CLI::CheckedTransformer(types()));
  allReduce->add_option("-o,--op", options.op, "reduction operator")->transform(CLI::CheckedTransformer(operators()));
  allReduce->add_option("-a,--algorithm", options.algorithms, "names, or all; default: the library's choice by size")
      ->delimiter(',');
  allReduce->add_option("--warmup", options.method.warmup, "calls before the first measurement")
      ->check(CLI::Range(0, 1'000'000));
  allReduce->add_option("--calls", options.method.calls, "calls a measurement (on a GPU: in one graph)")
      ->check(CLI::Range(1, 1'000'000));
  allReduce->add_option("--repeats", options.method.repeats, "measurements, of which the median counts")
      ->check(CLI::Range(1, 10'000));
  allReduce->add_flag("--in-place", options.inPlace, "the output is the input");
  allReduce->add_flag("--no-check{false}", options.check, "do not compare results with the reference");
  allReduce->add_flag("--json", options.json, "a line of JSON for each measurement instead of the table");
  allReduce->add_flag("--nccl", options.nccl,
                      "measure NCCL too, plain and with symmetric windows, in the same run (GPU)");
  allReduce->add_option("--nccl-library", options.ncclLibrary, "path of libnccl.so.2, if the loader does not find it");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    code = app.exit(error);
    return false;
  }
  if (!sizes.empty()) {
    options.sizes.assign(sizes.begin(), sizes.end());
  } else {
    std::uint64_t size = begin;
    while (size <= end && size > 0) {
      options.sizes.push_back(size);
      const auto next = static_cast<std::uint64_t>(static_cast<double>(size) * factor);
      size = next > size ? next : size + 1;
    }
  }
  return true;
}

}  // namespace mscclpp::perf
