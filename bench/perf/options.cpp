// Parses the command line of mscclpp-perf.
#include "options.hpp"

#include <initializer_list>
#include <utility>

#include "collective_shape.hpp"
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

cli::NameMap<TimingMode> modes() {
  return byName({TimingMode::Steady, TimingMode::Skewed, TimingMode::Rotated, TimingMode::Between});
}

const char* describe(CollectiveType collective) {
  switch (collective) {
    case CollectiveType::AllReduce:
      return "every rank gets the reduction of all ranks' inputs";
    case CollectiveType::AllGather:
      return "every rank gets the parts of all ranks";
    case CollectiveType::ReduceScatter:
      return "every rank gets its part of the reduction of all ranks' inputs";
    case CollectiveType::AllToAll:
      return "every rank sends a part to each rank";
    case CollectiveType::Broadcast:
      return "every rank gets the root's input";
    case CollectiveType::Reduce:
      return "the root gets the reduction of all ranks' inputs";
    case CollectiveType::Gather:
      return "the root gets the parts of all ranks";
    case CollectiveType::Scatter:
      return "every rank gets its part of the root's input";
    case CollectiveType::ReduceScatterV:
      break;
    case CollectiveType::SendReceive:
      return "rank r sends to rank r + 1 and receives from rank r - 1, at once";
  }
  return "";
}

/// The sizes of a sweep.
struct SizeRange {
  std::uint64_t begin = 1024;
  std::uint64_t end = 64 << 20;
  double factor = 2;
};

void addOptions(cli::Command& command, CollectiveType collective, Options& options, SizeRange& range) {
  const cli::NameMap<DeviceSelection> devices{
      {"auto", DeviceSelection::Auto}, {"gpu", DeviceSelection::Gpu}, {"cpu", DeviceSelection::Cpu}};
  const std::string size =
      isSizeOfAllParts(collective) ? "all ranks' parts together, of which each gets size / ranks," : "the message";
  command.add("-n,--ranks", options.ranks, "number of ranks; default: one per GPU, or 4 on CPUs").range(1, maxTeamSize);
  command.addNamed("--device", options.device, devices, "auto, gpu or cpu");
  command.addFlag("--one-gpu", options.oneGpu,
                  "all ranks, 2 by default, are threads that share a GPU, which has room for their kernels with few "
                  "--max-blocks: compares kernels with each other, without links between GPUs");
  command.addBytes("-b,--begin", range.begin, "smallest size: that of " + size + " in bytes, such as 1K");
  command.addBytes("-e,--end", range.end, "largest size");
  command.add("-f,--factor", range.factor, "ratio of successive sizes").range(1.01, 1e6);
  command.addBytes("--sizes", options.sizes, "list of sizes instead, such as 1K,384K,48M");
  command.addNamed("-d,--datatype", options.type, types(), "element type");
  if (hasReduction(collective)) command.addNamed("-o,--op", options.op, operators(), "reduction operator");
  if (hasRoot(collective)) command.add("-r,--root", options.root, "rank of the root").range(0, maxTeamSize - 1);
  command.add("-a,--algorithm", options.algorithms, "algorithm names, or all; default: chosen by size");
  command.add("--plan", options.plans,
              "also measure execution plans: files in MSCCL++'s JSON schema, MSCCL's XML or the text form");
  command.addNamed(
      "--mode", options.mode, modes(),
      "steady: calls one after the other; skewed: the ranks enter each call at random times; rotated: "
      "buffers outside the L2 cache; between: between a producer and a consumer kernel. CPU ranks: steady");
  command.add("--warmup", options.timing.warmup, "calls before the first measurement").range(0, 1'000'000);
  command.add("--calls", options.timing.calls, "calls per measurement (on a GPU: in one graph)").range(1, 1'000'000);
  command.add("--repeats", options.timing.repeats, "number of measurements; their median is reported").range(1, 10'000);
  if (hasInPlaceForm(collective)) {
    command.addFlag("--in-place", options.inPlace, "with the output where the input is, as NCCL defines it");
  }
  command.add("--tune", options.tuningFile,
              "measure all algorithms, and put the fastest of each size into this file, by which a process with "
              "MSCCLPP_TUNING_FILE selects them");
  command.add("--max-blocks", options.maxBlocks, "the most blocks of a kernel (GPU); default: as many as are fastest")
      .range(1, 128);
  if (collective == CollectiveType::AllToAll || collective == CollectiveType::SendReceive) {
    command.addFlag("--exchange", options.exchange, "also measure an exchange of the same messages");
  }
  command.addFlag("--registered", options.registered, "also measure with buffers that all ranks have registered");
  command.addFlag("--no-check{false}", options.check, "do not compare results with the reference");
  command.addFlag("--json", options.json, "print one line of JSON per measurement instead of the table");
  command.addFlag("--nccl", options.nccl, "also measure NCCL, plain and with symmetric windows, in the same run (GPU)");
  command.add("--nccl-library", options.ncclLibrary, "path of libnccl.so.2, if the loader does not find it");
  command.add("--trace", options.traceFile,
              "write a trace for Perfetto or chrome://tracing to this file: additional calls of each size and "
              "algorithm, with the stages of each block");
  command.add("--trace-calls", options.tracedCalls, "calls of each size and algorithm in the trace").range(1, 1000);
}

}  // namespace

std::optional<int> parse(int argc, char** argv, Options& options) {
  cli::CommandLine commandLine("Times and checks collectives over all GPUs of this machine, or over CPU ranks.");
  SizeRange range;
  std::vector<std::pair<CollectiveType, cli::Command>> commands;
  for (int i = 0; i < collectiveTypes; ++i) {
    const auto collective = static_cast<CollectiveType>(i);
    if (hasVariableCounts(collective)) continue;
    cli::Command command = commandLine.addCommand(nameOf(collective), describe(collective));
    addOptions(command, collective, options, range);
    commands.emplace_back(collective, command);
  }
  if (const auto exitCode = commandLine.parse(argc, argv)) return exitCode;
  for (const auto& [collective, command] : commands) {
    if (command.isChosen()) options.collective = collective;
  }
  if (options.oneGpu && (options.nccl || options.device == DeviceSelection::Cpu)) {
    return commandLine.reject("--one-gpu", options.nccl ? "NCCL needs a GPU for each rank" : "it needs --device gpu");
  }
  if (!options.tuningFile.empty()) {
    if (!options.algorithms.empty()) return commandLine.reject("--algorithm", "--tune measures all of them");
    options.algorithms = {"all"};
  }
  if (options.sizes.empty()) {
    if (range.begin > range.end) return commandLine.reject("--begin", "must not exceed --end");
    for (std::uint64_t size = range.begin; size <= range.end;) {
      options.sizes.push_back(size);
      const auto next = static_cast<std::uint64_t>(static_cast<double>(size) * range.factor);
      size = next > size ? next : size + 1;
    }
  }
  constexpr std::uint64_t maxBytes = std::uint64_t{1} << 40;
  for (const std::uint64_t size : options.sizes) {
    if (size > maxBytes) return commandLine.reject("sizes", "messages are limited to 1T bytes");
  }
  return std::nullopt;
}

}  // namespace mscclpp::perf
