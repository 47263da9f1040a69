// Prints measurements: nccl-tests' columns, or lines of JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "options.hpp"

namespace mscclpp::perf {

struct Row {
  std::string algorithm;  ///< the algorithm, or the baseline
  std::size_t bytes;
  std::size_t count;
  double microseconds;
  std::size_t wrong;
  bool checked;
};

/// Used by rank 0 only.
class Report {
 public:
  Report(const Options& options, int ranks, const std::string& backend);
  void progress(std::size_t index, std::size_t of, std::size_t bytes) const;
  void add(const Row& row) const;
  /// The trace has been written; `lost` events were dropped.
  void printTraceSummary(std::uint64_t lost) const;
  /// `wrong`: number of wrong elements in all rows.
  void printVerdict(std::size_t wrong) const;

 private:
  const Options& options_;
  int ranks_;
  bool isTerminal_;
};

}  // namespace mscclpp::perf
