// The choice of an algorithm by message size.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "algorithms.hpp"
#include "mscclpp/host/base/device.hpp"
#include "region_layout.hpp"

namespace mscclpp::kernels {

/// The algorithms of every collective by message size, on one kind of device and number of ranks: those that the
/// environment forces (MSCCLPP_ALGO), or those of a file of measurements (MSCCLPP_TUNING_FILE) where it has some for
/// the collective, or the built-in ones.
class Selection {
 public:
  struct Choice {
    std::size_t maxBytes;   ///< of CollectiveCall::count elements; noLimit: any
    std::size_t algorithm;  ///< an index in algorithmTable
  };

  /// deviceName: of the GPU, empty on CPUs. maxBlocks: of a launch. Throws Error(InvalidUsage) if the environment names
  /// what does not exist.
  Selection(DeviceType deviceType, const std::string& deviceName, int ranks, int maxBlocks);

  /// In the order in which they are to be tried.
  const std::vector<Choice>& choices(CollectiveType collective) const {
    return choices_[static_cast<std::size_t>(collective)];
  }
  /// The algorithms that are any choice of their collective, and those for what no choice supports; without copy
  /// engines. Each with the longest message for which it can be chosen.
  std::vector<AlgorithmInUse> algorithmsInUse() const;

 private:
  std::array<std::vector<Choice>, collectiveTypes> choices_;
};

/// All algorithms but copy engines, each with the longest message that it supports.
std::vector<AlgorithmInUse> allAlgorithms();

/// The algorithms that a list such as "all_reduce:two_shot_ll128,all_gather:pipelined" names, as indices in
/// algorithmTable. Throws Error(InvalidUsage) with the known names.
std::vector<std::size_t> parseAlgorithmList(const std::string& list);

}  // namespace mscclpp::kernels
