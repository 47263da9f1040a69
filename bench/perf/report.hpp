// Prints measurements: nccl-tests' columns, or lines of JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "collective_shape.hpp"
#include "comparison.hpp"
#include "options.hpp"
#include "timing_modes.hpp"

namespace mscclpp::perf {

struct Row {
  std::string implementation;
  std::string algorithm;
  CollectiveShape shape;
  Timing timing;
  std::size_t wrong;
  std::optional<Comparison> comparison = {};
};

/// Used by rank 0 only.
class Report {
 public:
  Report(const Options& options, int ranks, const std::string& backend);
  /// The library's calls and plans share a GPU only by taking turns.
  void printTurns() const;
  void progress(std::size_t index, std::size_t of, std::size_t bytes) const;
  void add(const Row& row) const;
  /// The trace has been written; `lost` events were dropped.
  void printTraceSummary(std::uint64_t lost) const;
  void printComparison(const ComparedImplementations& implementations) const;
  /// `wrong`: number of wrong elements in all rows.
  void printVerdict(std::size_t wrong) const;

 private:
  void printJson(const Row& row, std::size_t bytes, double algorithmBandwidth, double busBandwidth) const;

  const Options& options_;
  int ranks_;
  bool isTerminal_;
};

}  // namespace mscclpp::perf
