// Which algorithm runs a call: the one that it names, or the first of the selection's that can.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "algorithms.hpp"
#include "backend.hpp"
#include "joined_reductions.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/kernels/collective_call.hpp"
#include "regions.hpp"
#include "selection.hpp"

namespace mscclpp::kernels {

/// The algorithms of a communicator that are set up, as indices in algorithmTable. Backend, selection and regions
/// outlive it. isRegistered: the output of the call is inside registered memory.
class AlgorithmChoice {
 public:
  AlgorithmChoice(DeviceType deviceType, int ranks, const Backend& backend, const Selection& selection,
                  const Regions& regions)
      : mostJoinedBytes_(deviceType == DeviceType::GPU ? mostJoinedBytes : mostJoinedBytesOnCpu),
        ranks_(ranks),
        backend_(backend),
        selection_(selection),
        regions_(regions) {}

  /// The names of a collective's.
  std::vector<std::string> namesOf(CollectiveType collective) const;

  /// The selected one for a message of `bytes` bytes, whatever the call names.
  std::size_t select(const CollectiveCall& call, std::size_t bytes, bool isRegistered) const;
  /// The one that the call names, or the selected one. Throws Error(InvalidUsage) if the named one cannot run it.
  std::size_t choose(const CollectiveCall& call, std::size_t bytes, bool isRegistered = false) const {
    return call.algorithm.empty() ? select(call, bytes, isRegistered) : findNamed(call, bytes, isRegistered);
  }
  /// Whether the one that the call names can run it.
  bool supports(const CollectiveCall& call, bool isRegistered) const;

  /// The most bytes of a call that performs several of the collective and type of this one; 0 if none can.
  std::size_t longestJoinedOf(const CollectiveCall& call) const;
  /// As select(), for such a call of that many bytes at most.
  std::size_t selectJoined(const CollectiveCall& call) const;

 private:
  bool isSetUp(std::size_t algorithm) const {
    return algorithmTable[algorithm].variants == Variants::CopyEngine || regions_.find(algorithm) != nullptr;
  }
  /// The longest message of an algorithm that is set up; noLimit: any.
  std::size_t longestOf(std::size_t algorithm) const;
  bool isTooLong(std::size_t algorithm, std::size_t bytes) const {
    return longestOf(algorithm) != noLimit && bytes > longestOf(algorithm);
  }
  /// Whether an algorithm that is set up can run a call with elements of this type.
  bool canRun(std::size_t algorithm, DataType type, bool isRegistered) const {
    if (needsRegistration(algorithmTable[algorithm]) && !isRegistered) return false;
    return algorithmTable[algorithm].variants == Variants::CopyEngine ||
           backend_.find(algorithm, type, ranks_) != nullptr;
  }
  bool canRunJoined(std::size_t algorithm, DataType type) const {
    return isSetUp(algorithm) && backend_.findJoined(algorithm, type, ranks_) != nullptr;
  }
  std::size_t findNamed(const CollectiveCall& call, std::size_t bytes, bool isRegistered) const;
  /// The first of the selection's choices for so many bytes that `suits`, or the fallback.
  template <class Suits>
  std::size_t firstChoice(CollectiveType collective, std::size_t bytes, const Suits& suits) const;

  std::size_t mostJoinedBytes_;
  int ranks_;
  const Backend& backend_;
  const Selection& selection_;
  const Regions& regions_;
};

}  // namespace mscclpp::kernels
