// Files of measurements, by which algorithms are selected.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mscclpp::kernels {

/// One choice of a file.
struct MeasuredChoice {
  bool isFirst;           ///< of its collective
  std::size_t maxBytes;   ///< noLimit: any
  std::size_t algorithm;  ///< an index in algorithmTable
};

/// The choices in a file for a device and number of ranks, in the file's order, which is that of growing sizes within a
/// collective; none if it has no table for them. The file, which mscclpp-perf writes with --tune, is JSON:
///
///   {"format": "mscclpp tuning 1", "tables": [{"device": "NVIDIA H200", "ranks": 2, "collective": "all_reduce",
///     "choices": [{"maxBytes": 65536, "algorithm": "one_shot_sentinel"}, ..., {"algorithm": "pipelined"}]}, ...]}
///
/// Throws Error(InvalidUsage), with the file's name and the place, if it cannot be read, is no such JSON, or names what
/// does not exist.
std::vector<MeasuredChoice> readTuningFile(const std::string& path, const std::string& deviceName, int ranks);

}  // namespace mscclpp::kernels
