// Parses the command line of mscclpp-perf.
#include "options.hpp"

#include <initializer_list>

#include "mscclpp/sync/window.hpp"
#include "tools/command_line/command_line.hpp"

namespace mscclpp::perf {

namespace {

template <class Value>
cli::NameMap<Value> byName(std::initializer_list<Value> values) {
  cli::NameMap<Value> names;
  for (const Value value : values) names.emplace(nameOf(value), value);
  return names;
}

cli::NameMap<DataType> types() {
  return byName({DataType::INT8, DataType::UINT8, DataType::INT16, DataType::UINT16, DataType::INT32, DataType::UINT32,
                 DataType::INT64, DataType::UINT64, DataType::FLOAT16, DataType::BFLOAT16, DataType::FLOAT32,
                 DataType::FLOAT64, DataType::FLOAT8_E4M3FN, DataType::FLOAT8_E5M2});
}

cli::NameMap<ReduceOp> operators() {
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

std::optional<int> parse(int argc, char** argv, Options& options) {
  cli::CommandLine commandLine("Times and checks collectives over all GPUs of this machine, or over CPU ranks.");
  cli::Command allReduce = commandLine.addCommand("all_reduce", "every rank gets the reduction of all ranks' inputs");
  std::uint64_t begin = 1024;
  std::uint64_t end = 64 << 20;
  double factor = 2;
  std::vector<std::uint64_t> sizes;
  const cli::NameMap<DeviceSelection> devices{
      {"auto", DeviceSelection::Auto}, {"gpu", DeviceSelection::Gpu}, {"cpu", DeviceSelection::Cpu}};
  allReduce.add("-n,--ranks", options.ranks, "number of ranks; default: one per GPU, or 4 on CPUs")
      .range(1, maxTeamSize);
  allReduce.addNamed("--device", options.device, devices, "auto, gpu or cpu");
  allReduce.addBytes("-b,--begin", begin, "smallest message in bytes, such as 1K");
  allReduce.addBytes("-e,--end", end, "largest message in bytes");
  allReduce.add("-f,--factor", factor, "ratio of successive sizes").range(1.01, 1e6);
  allReduce.addBytes("--sizes", sizes, "list of sizes instead, such as 1K,384K,48M");
  allReduce.addNamed("-d,--datatype", options.type, types(), "element type");
  allReduce.addNamed("-o,--op", options.op, operators(), "reduction operator");
  allReduce.add("-a,--algorithm", options.algorithms, "algorithm names, or all; default: chosen by size");
  allReduce.add("--warmup", options.timing.warmup, "calls before the first measurement").range(0, 1'000'000);
  allReduce.add("--calls", options.timing.calls, "calls per measurement (on a GPU: in one graph)").range(1, 1'000'000);
  allReduce.add("--repeats", options.timing.repeats, "number of measurements; their median is reported")
      .range(1, 10'000);
  allReduce.addFlag("--in-place", options.inPlace, "reduce in place");
  allReduce.addFlag("--no-check{false}", options.check, "do not compare results with the reference");
  allReduce.addFlag("--json", options.json, "print one line of JSON per measurement instead of the table");
  allReduce.addFlag("--nccl", options.nccl,
                    "also measure NCCL, plain and with symmetric windows, in the same run (GPU)");
  allReduce.add("--nccl-library", options.ncclLibrary, "path of libnccl.so.2, if the loader does not find it");
  allReduce.add("--trace", options.traceFile,
                "write a trace for Perfetto or chrome://tracing to this file: additional calls of each size and "
                "algorithm, with the stages of each block");
  allReduce.add("--trace-calls", options.tracedCalls, "calls of each size and algorithm in the trace").range(1, 1000);
  if (const auto exitCode = commandLine.parse(argc, argv)) return exitCode;
  if (sizes.empty()) {
    if (begin > end) return commandLine.reject("--begin", "must not exceed --end");
    for (std::uint64_t size = begin; size <= end;) {
      sizes.push_back(size);
      const auto next = static_cast<std::uint64_t>(static_cast<double>(size) * factor);
      size = next > size ? next : size + 1;
    }
  }
  constexpr std::uint64_t maxBytes = std::uint64_t{1} << 40;
  for (const std::uint64_t size : sizes) {
    if (size > maxBytes) return commandLine.reject("sizes", "messages are limited to 1T bytes");
  }
  options.sizes = messageSizes(sizes, sizeOf(options.type));
  return std::nullopt;
}

}  // namespace mscclpp::perf
