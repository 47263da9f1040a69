// Exceptions as results with NCCL's values.
#pragma once

#include <string>
#include <utility>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/algorithm.hpp"

namespace mscclpp::kernels {

/// An algorithm that cannot run here or now: CommInvalidUsage, where any other Error(InvalidUsage) is
/// CommInvalidArgument.
class UnavailableAlgorithm : public Error {
 public:
  explicit UnavailableAlgorithm(const std::string& message) : Error(message, ErrorCode::InvalidUsage) {}
};

/// The result and the message of an exception.
struct FailedCall {
  CommResult result;
  std::string message;
};
/// Those of the exception that is being handled. Throws std::bad_alloc.
FailedCall describeException();

/// Logs the exception that is being handled, of the algorithm of this name, and returns its result.
CommResult resultOfException(const std::string& algorithm) noexcept;

/// Returns what body() returns, or the result of its exception.
template <class Body>
CommResult resultOf(const std::string& algorithm, Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    return resultOfException(algorithm);
  }
}

}  // namespace mscclpp::kernels
