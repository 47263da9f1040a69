// What the library's kinds of algorithms have in common.
#include <utility>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/algorithm.hpp"

namespace mscclpp {

DescribedAlgorithm::DescribedAlgorithm(AlgorithmDescription description) : description_(std::move(description)) {
  if (description_.name.empty() || description_.collective.empty()) {
    throw Error("an algorithm has no name or no collective: give it both", ErrorCode::InvalidUsage);
  }
  setMessageSizeRange(description_.messageRange.first, description_.messageRange.second);
}

void DescribedAlgorithm::setMessageSizeRange(std::size_t minMessageSize, std::size_t maxMessageSize) {
  if (minMessageSize > maxMessageSize) {
    throw Error("algorithm " + description_.name + ": the shortest message, " + std::to_string(minMessageSize) +
                    " bytes, is longer than the longest, " + std::to_string(maxMessageSize),
                ErrorCode::InvalidUsage);
  }
  description_.messageRange = {minMessageSize, maxMessageSize};
}

}  // namespace mscclpp
