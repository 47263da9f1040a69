// How fast a plan is beside the library's own algorithm, which is measured in the same run.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace mscclpp::perf {

/// How much longer than the library's algorithm a call may take: by this ratio, or by so many microseconds.
struct Goal {
  double ratio;
  double microseconds;
};

/// The time of a call less that of the library's algorithm.
struct Comparison {
  std::string with;     ///< the algorithm
  double ratio;         ///< of the times
  double microseconds;  ///< more
  bool isReached;       ///< the goal
};

inline Comparison compare(const Goal& goal, double microseconds, const std::string& with, double withMicroseconds) {
  const double more = microseconds - withMicroseconds;
  const double ratio = withMicroseconds > 0 ? microseconds / withMicroseconds : 1;
  return {with, ratio, more, ratio <= goal.ratio || more <= goal.microseconds};
}

/// The comparisons of all sizes.
struct ComparedSizes {
  Goal goal;
  std::size_t sizes = 0;
  std::size_t reached = 0;
  Comparison worst = {};  ///< by the ratio, of those that did not reach the goal, or of all
  std::size_t worstBytes = 0;

  void add(const Comparison& comparison, std::size_t bytes) {
    ++sizes;
    reached += comparison.isReached ? 1 : 0;
    const bool isWorse = worst.isReached == comparison.isReached ? comparison.ratio > worst.ratio : worst.isReached;
    if (sizes > 1 && !isWorse) return;
    worst = comparison;
    worstBytes = bytes;
  }
};

/// By the name of the implementation.
using ComparedImplementations = std::map<std::string, ComparedSizes>;

}  // namespace mscclpp::perf
