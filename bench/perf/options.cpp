// Parses the command line of mscclpp-perf.
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <map>

#include "mscclpp/sync/window.hpp"

namespace mscclpp::perf {

namespace {

template <class Value>
std::map<std::string, Value> byName(std::initializer_list<Value> values) {
  std::map<std::string, Value> names;
  for (const Value value : values) names.emplace(nameOf(value), value);
  return names;
}

std::map<std::string, DataType> types() {
  return byName({DataType::INT8, DataType::UINT8, DataType::INT16, DataType::UINT16, DataType::INT32, DataType::UINT32,
                 DataType::INT64, DataType::UINT64, DataType::FLOAT16, DataType::BFLOAT16, DataType::FLOAT32,
                 DataType::FLOAT64, DataType::FLOAT8_E4M3FN, DataType::FLOAT8_E5M2});
}

std::map<std::string, ReduceOp> operators() {
  return byName({ReduceOp::SUM, ReduceOp::PROD, ReduceOp::MIN, ReduceOp::MAX, ReduceOp::AVG});
}

/// Rounds sizes down to whole elements, and removes duplicates.
std::vector<std::size_t> messageSizes(const std::vector<std::uint64_t>& sizes, std::size_t elementBytes) {
  std::vector<std::size_t> messages;
  for (const std::uint64_t size : sizes) {
    const std::size_t bytes = size / elementBytes * elementBytes;
    if (messages.empty() || messages.back() != bytes) messages.push_back(bytes);
  }
  return messages;
}

}  // namespace

bool parse(int argc, char** argv, Options& options, int& code) {
  CLI::App app{"Times and checks collectives over all GPUs of this machine, or over CPU ranks."};
  app.require_subcommand(1);
  CLI::App* allReduce = app.add_subcommand("all_reduce", "every rank gets the reduction of all ranks' inputs");
  std::uint64_t begin = 1024;
  std::uint64_t end = 64 << 20;
  double factor = 2;
  std::vector<std::uint64_t> sizes;
  const CLI::AsSizeValue bytes(false);
  allReduce->add_option("-n,--ranks", options.ranks, "number of ranks; default: one per GPU, or 4 on CPUs")
      ->check(CLI::Range(1, maxTeamSize));
  allReduce->add_option("--device", options.device, "auto, gpu or cpu")
      ->transform(CLI::CheckedTransformer(std::map<std::string, DeviceSelection>{
          {"auto", DeviceSelection::Auto}, {"gpu", DeviceSelection::Gpu}, {"cpu", DeviceSelection::Cpu}}));
  allReduce->add_option("-b,--begin", begin, "smallest message in bytes, such as 1K")->transform(bytes);
  allReduce->add_option("-e,--end", end, "largest message in bytes")->transform(bytes);
  allReduce->add_option("-f,--factor", factor, "ratio of successive sizes")->check(CLI::Range(1.01, 1e6));
  allReduce->add_option("--sizes", sizes, "list of sizes instead, such as 1K,384K,48M")
      ->delimiter(',')
      ->transform(bytes);
  allReduce->add_option("-d,--datatype", options.type, "element type")->transform(CLI::CheckedTransformer(types()));
  allReduce->add_option("-o,--op", options.op, "reduction operator")->transform(CLI::CheckedTransformer(operators()));
  allReduce->add_option("-a,--algorithm", options.algorithms, "algorithm names, or all; default: chosen by size")
      ->delimiter(',');
  allReduce->add_option("--warmup", options.timing.warmup, "calls before the first measurement")
      ->check(CLI::Range(0, 1'000'000));
  allReduce->add_option("--calls", options.timing.calls, "calls per measurement (on a GPU: in one graph)")
      ->check(CLI::Range(1, 1'000'000));
  allReduce->add_option("--repeats", options.timing.repeats, "number of measurements; their median is reported")
      ->check(CLI::Range(1, 10'000));
  allReduce->add_flag("--in-place", options.inPlace, "reduce in place");
  allReduce->add_flag("--no-check{false}", options.check, "do not compare results with the reference");
  allReduce->add_flag("--json", options.json, "print one line of JSON per measurement instead of the table");
  allReduce->add_flag("--nccl", options.nccl,
                      "also measure NCCL, plain and with symmetric windows, in the same run (GPU)");
  allReduce->add_option("--nccl-library", options.ncclLibrary, "path of libnccl.so.2, if the loader does not find it");
  allReduce->add_option(
      "--trace", options.traceFile,
      "write a trace for Perfetto or chrome://tracing to this file: additional calls of each size and "
      "algorithm, with the stages of each block");
  allReduce->add_option("--trace-calls", options.tracedCalls, "calls of each size and algorithm in the trace")
      ->check(CLI::Range(1, 1000));
  try {
    app.parse(argc, argv);
    if (sizes.empty()) {
      if (begin > end) throw CLI::ValidationError("--begin", "must not exceed --end");
      for (std::uint64_t size = begin; size <= end;) {
        sizes.push_back(size);
        const auto next = static_cast<std::uint64_t>(static_cast<double>(size) * factor);
        size = next > size ? next : size + 1;
      }
    }
    constexpr std::uint64_t maxBytes = std::uint64_t{1} << 40;
    for (const std::uint64_t size : sizes) {
      if (size > maxBytes) throw CLI::ValidationError("sizes", "messages are limited to 1T bytes");
    }
  } catch (const CLI::ParseError& error) {
    code = app.exit(error);
    return false;
  }
  options.sizes = messageSizes(sizes, sizeOf(options.type));
  return true;
}

}  // namespace mscclpp::perf
