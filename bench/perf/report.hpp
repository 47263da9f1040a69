// Prints measurements: nccl-tests' columns, or lines of JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "options.hpp"

namespace mscclpp::perf {

struct Row {
  std::string what;  ///< the algorithm, or the peer
  std::size_t bytes;
  std::size_t count;
  double microseconds;
  std::size_t wrong;
  bool checked;
};

/// Used by rank 0 only.
class Report {
 public:
  Report(const Options& options, int ranks, const std::string& place);
  void progress(std::size_t index, std::size_t of, std::size_t bytes) const;
  void add(const Row& row) const;
  /// The trace has been written, without so many events.
  void traced(std::uint64_t lost) const;
  /// `wrong`: wrong elements in all rows.
  void close(std::size_t wrong) const;

 private:
  const Options& options_;
  int ranks_;
  bool terminal_;
};

}  // namespace mscclpp::perf
