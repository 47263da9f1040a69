// Prints measurements: nccl-tests' columns, or lines of JSON.
#include "report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "bench/json_line.hpp"

namespace mscclpp::perf {

Report::Report(const Options& options, int ranks, const std::string& backend)
    : options_(options), ranks_(ranks), isTerminal_(::isatty(STDERR_FILENO) == 1) {
  if (options.json) return;
  fmt::print("# all_reduce over {} ranks on {}; {} calls per measurement, median of {}, maximum over the ranks; {}\n",
             ranks, backend, options.timing.calls, options.timing.repeats,
             options.inPlace ? "in place" : "out of place");
  fmt::print("# {:>12} {:>12} {:>9} {:>6} {:>10} {:>9} {:>9} {:>7}  {}\n", "size", "count", "type", "redop", "time",
             "algbw", "busbw", "#wrong", "algorithm");
  fmt::print("# {:>12} {:>12} {:>9} {:>6} {:>10} {:>9} {:>9}\n", "(B)", "(elements)", "", "", "(us)", "(GB/s)",
             "(GB/s)");
  std::fflush(stdout);
}

void Report::progress(std::size_t index, std::size_t of, std::size_t bytes) const {
  if (!isTerminal_) return;
  fmt::print(stderr, "\r[{}/{}] {} bytes\x1b[K", index + 1, of, bytes);
  std::fflush(stderr);
}

void Report::add(const Row& row) const {
  if (isTerminal_) fmt::print(stderr, "\r\x1b[K");
  const double algorithmBandwidth = static_cast<double>(row.bytes) / row.microseconds / 1e3;
  const double busBandwidth = algorithmBandwidth * 2 * (ranks_ - 1) / ranks_;
  if (options_.json) {
    bench::JsonLine line;
    line.add("collective", "all_reduce")
        .add("ranks", ranks_)
        .add("bytes", row.bytes)
        .add("count", row.count)
        .add("type", nameOf(options_.type))
        .add("op", nameOf(options_.op))
        .add("inPlace", options_.inPlace)
        .add("algorithm", row.algorithm)
        .add("us", row.microseconds)
        .add("algbw", algorithmBandwidth)
        .add("busbw", busBandwidth);
    if (row.checked) line.add("wrong", row.wrong);
    fmt::print("{}\n", line.text());
  } else {
    fmt::print("{:>14} {:>12} {:>9} {:>6} {:>10.2f} {:>9.2f} {:>9.2f} {:>7}  {}\n", row.bytes, row.count,
               nameOf(options_.type), nameOf(options_.op), row.microseconds, algorithmBandwidth, busBandwidth,
               row.checked ? std::to_string(row.wrong) : "N/A", row.algorithm);
  }
  std::fflush(stdout);
}

void Report::printTraceSummary(std::uint64_t lost) const {
  if (options_.json) return;
  fmt::print("# trace of {} calls of each size: {}{}\n", options_.tracedCalls, options_.traceFile,
             lost == 0 ? "" : fmt::format(", {} events dropped because a buffer was full", lost));
}

void Report::printVerdict(std::size_t wrong) const {
  if (options_.json) return;
  fmt::print("# {}\n", !options_.check ? "results were not checked"
                       : wrong == 0    ? "all results are correct"
                                       : "RESULTS ARE WRONG");
}

}  // namespace mscclpp::perf
