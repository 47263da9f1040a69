// Prints measurements: nccl-tests' columns, or lines of JSON.
#include "report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "bench/json_line.hpp"

namespace mscclpp::perf {

namespace {

/// What is timed, for the header of the table.
std::string describe(const Options& options) {
  const TimingOptions& timing = options.timing;
  switch (options.mode) {
    case TimingMode::Steady:
      break;
    case TimingMode::Skewed:
      return fmt::format(
          "mode skewed: {} x {} single calls after random delays of 0 to 10 us; median of the maximum over the ranks, "
          "which includes the wait for the last rank",
          timing.repeats, timing.calls);
    case TimingMode::Rotated:
      return fmt::format(
          "mode rotated: {} calls per measurement on buffers outside the L2 cache, median of {}, maximum over the "
          "ranks",
          timing.calls, timing.repeats);
    case TimingMode::Between:
      return fmt::format(
          "mode between: {} calls per measurement between a producer and a consumer kernel, less these; median of {}, "
          "maximum over the ranks",
          timing.calls, timing.repeats);
  }
  return fmt::format("{} calls per measurement, median of {}, maximum over the ranks", timing.calls, timing.repeats);
}

}  // namespace

Report::Report(const Options& options, int ranks, const std::string& backend)
    : options_(options), ranks_(ranks), isTerminal_(::isatty(STDERR_FILENO) == 1) {
  if (options.json) return;
  fmt::print("# {} over {} ranks on {}; {}; {}\n", nameOf(options.collective), ranks, backend, describe(options),
             options.inPlace ? "in place" : "out of place");
  if (isSizeOfAllParts(options.collective)) {
    fmt::print("# size: of all ranks' parts together; count: elements of one part\n");
  }
  fmt::print("# {:>12} {:>12} {:>9} {:>6} {:>5} {:>10} {:>9} {:>9} {:>7}  {}\n", "size", "count", "type", "redop",
             "root", "time", "algbw", "busbw", "#wrong", "algorithm");
  fmt::print("# {:>12} {:>12} {:>9} {:>6} {:>5} {:>10} {:>9} {:>9}\n", "(B)", "(elements)", "", "", "", "(us)",
             "(GB/s)", "(GB/s)");
  std::fflush(stdout);
}

void Report::printTurns() const {
  if (options_.json) return;
  fmt::print(
      "# The blocks of all do not fit on a GPU at once, so that each call waits for the one before to end. "
      "--max-blocks "
      "16 or less leaves room for plans of up to 8.\n");
}

void Report::progress(std::size_t index, std::size_t of, std::size_t bytes) const {
  if (!isTerminal_) return;
  fmt::print(stderr, "\r[{}/{}] {} bytes\x1b[K", index + 1, of, bytes);
  std::fflush(stderr);
}

void Report::add(const Row& row) const {
  if (isTerminal_) fmt::print(stderr, "\r\x1b[K");
  const std::size_t bytes = row.shape.size() * sizeOf(options_.type);
  // A difference of two measurements may be 0 or less.
  const double microseconds = row.timing.slowest;
  const double algorithmBandwidth = microseconds > 0 ? static_cast<double>(bytes) / microseconds / 1e3 : 0;
  const double busBandwidth = algorithmBandwidth * busFactor(options_.collective, ranks_);
  if (options_.json) {
    printJson(row, bytes, algorithmBandwidth, busBandwidth);
  } else {
    const auto beside = [](const Comparison& c) {
      return fmt::format(": {:.3f} of {}, {:+.2f} us", c.ratio, c.with, c.microseconds);
    };
    fmt::print("{:>14} {:>12} {:>9} {:>6} {:>5} {:>10.2f} {:>9.2f} {:>9.2f} {:>7}  {}{}\n", bytes, row.shape.count,
               nameOf(options_.type), hasReduction(options_.collective) ? nameOf(options_.op) : "none",
               hasRoot(options_.collective) ? options_.root : -1, microseconds, algorithmBandwidth, busBandwidth,
               options_.check ? std::to_string(row.wrong) : "N/A", row.algorithm,
               row.comparison ? beside(*row.comparison) : "");
  }
  std::fflush(stdout);
}

void Report::printJson(const Row& row, std::size_t bytes, double algorithmBandwidth, double busBandwidth) const {
  bench::JsonLine line;
  line.add("collective", nameOf(options_.collective))
      .add("mode", nameOf(options_.mode))
      .add("ranks", ranks_)
      .add("bytes", bytes)
      .add("count", row.shape.count)
      .add("type", nameOf(options_.type));
  if (hasReduction(options_.collective)) line.add("op", nameOf(options_.op));
  if (hasRoot(options_.collective)) line.add("root", options_.root);
  line.add("inPlace", options_.inPlace)
      .add("implementation", row.implementation)
      .add("algorithm", row.algorithm)
      .add("us", row.timing.slowest);
  if (options_.mode == TimingMode::Skewed) line.add("fastestUs", row.timing.fastest);
  line.add("algbw", algorithmBandwidth).add("busbw", busBandwidth);
  if (options_.check) line.add("wrong", row.wrong);
  if (row.comparison) {
    line.add("comparedWith", row.comparison->with)
        .add("ratio", row.comparison->ratio)
        .add("differenceUs", row.comparison->microseconds)
        .add("goalReached", row.comparison->isReached);
  }
  fmt::print("{}\n", line.text());
}

void Report::printTraceSummary(std::uint64_t lost) const {
  if (options_.json) return;
  fmt::print("# trace of {} calls of each size: {}{}\n", options_.tracedCalls, options_.traceFile,
             lost == 0 ? "" : fmt::format(", {} events dropped because a buffer was full", lost));
}

void Report::printComparison(const ComparedImplementations& implementations) const {
  if (options_.json) return;
  for (const auto& [name, compared] : implementations) {
    fmt::print("# {}: {} of {} sizes within {:.0f}% or {:.2f} us; the worst: {:.3f} of {}, {:+.2f} us, at {} B\n", name,
               compared.reached, compared.sizes, (compared.goal.ratio - 1) * 100, compared.goal.microseconds,
               compared.worst.ratio, compared.worst.with, compared.worst.microseconds, compared.worstBytes);
  }
}

void Report::printVerdict(std::size_t wrong) const {
  if (options_.json) return;
  fmt::print("# {}\n", !options_.check ? "results were not checked"
                       : wrong == 0    ? "all results are correct"
                                       : "RESULTS ARE WRONG");
}

}  // namespace mscclpp::perf
