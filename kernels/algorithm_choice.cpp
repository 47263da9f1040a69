#include "algorithm_choice.hpp"

#include <algorithm>

#include "call_arguments.hpp"

namespace mscclpp::kernels {

std::vector<std::string> AlgorithmChoice::namesOf(CollectiveType collective) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < algorithmTable.size(); ++i) {
    if (algorithmTable[i].collective == collective && isSetUp(i)) names.emplace_back(algorithmTable[i].name);
  }
  return names;
}

template <class Suits>
std::size_t AlgorithmChoice::firstChoice(CollectiveType collective, std::size_t bytes, const Suits& suits) const {
  for (const Selection::Choice& choice : selection_.choices(collective)) {
    if (choice.maxBytes != noLimit && bytes > choice.maxBytes) continue;
    if (suits(choice.algorithm)) return choice.algorithm;
  }
  return fallbackOf(collective);
}

std::size_t AlgorithmChoice::select(const CollectiveCall& call, std::size_t bytes, bool isRegistered) const {
  return firstChoice(call.collective, bytes, [&](std::size_t algorithm) {
    return isSetUp(algorithm) && canRun(algorithm, call.type, isRegistered);
  });
}

bool AlgorithmChoice::supports(const CollectiveCall& call, bool isRegistered) const {
  const std::size_t algorithm = indexOf(call.collective, call.algorithm);
  return algorithm < algorithmTable.size() && isSetUp(algorithm) && !isTooLong(algorithm, bytesOf(call)) &&
         canRun(algorithm, call.type, isRegistered);
}

std::size_t AlgorithmChoice::longestJoinedOf(const CollectiveCall& call) const {
  if (!isJoined(call.collective)) return 0;
  if (canRunJoined(fallbackOf(call.collective), call.type)) return mostJoinedBytes_;
  std::size_t longest = 0;
  for (const Selection::Choice& choice : selection_.choices(call.collective)) {
    if (!canRunJoined(choice.algorithm, call.type)) continue;
    longest = std::max(longest, choice.maxBytes == noLimit ? mostJoinedBytes_ : choice.maxBytes);
  }
  return std::min(longest, mostJoinedBytes_);
}

std::size_t AlgorithmChoice::selectJoined(const CollectiveCall& call) const {
  return firstChoice(call.collective, bytesOf(call),
                     [&](std::size_t algorithm) { return canRunJoined(algorithm, call.type); });
}

std::size_t AlgorithmChoice::longestOf(std::size_t algorithm) const {
  const std::size_t supported = algorithmTable[algorithm].maxBytes;
  return supported == noLimit ? noLimit : std::min(supported, regions_.find(algorithm)->capacity);
}

std::size_t AlgorithmChoice::findNamed(const CollectiveCall& call, std::size_t bytes, bool isRegistered) const {
  const std::size_t index = indexOf(call.collective, call.algorithm);
  if (index == algorithmTable.size() || !isSetUp(index)) {
    std::string known;
    for (const std::string& each : namesOf(call.collective)) known += (known.empty() ? "" : ", ") + each;
    throwInvalidCall(call,
                     index == algorithmTable.size()
                         ? "unknown algorithm \"" + call.algorithm + "\"; available: " + known
                         : "algorithm \"" + call.algorithm + "\" is not set up; available: " + known +
                               "; construct Collectives with Algorithms::All, on all ranks, for all that the GPUs "
                               "can run, or select it by MSCCLPP_ALGO or a tuning file");
  }
  const Algorithm& algorithm = algorithmTable[index];
  if (isTooLong(index, bytes)) {
    const bool fitsInAll = bytes <= algorithm.maxBytes;
    throwInvalidCall(call, call.algorithm + (fitsInAll ? " is set up for" : " supports") + " messages of up to " +
                               std::to_string(longestOf(index)) + " bytes, not " + std::to_string(bytes) +
                               ": do not name an algorithm, " +
                               (fitsInAll ? "construct Collectives with Algorithms::All, on all ranks, " : "") +
                               "or use " + algorithmTable[fallbackOf(call.collective)].name);
  }
  if (needsRegistration(algorithm) && !isRegistered) {
    throwInvalidCall(call, call.algorithm + " needs an output inside memory that registerBuffer() has registered, on " +
                               "all ranks" + (call.ignoresRegistration ? ", and no ignoresRegistration" : "") +
                               ": register it, or do not name an algorithm");
  }
  if (!canRun(index, call.type, isRegistered)) {
    throwInvalidCall(
        call, call.algorithm + " is not compiled for data type " + nameOf(call.type) + ": do not name an algorithm");
  }
  return index;
}

}  // namespace mscclpp::kernels
