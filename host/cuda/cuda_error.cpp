// The exceptions of the CUDA runtime and driver, and the texts of their error codes.
#include <string>

#include "host/cuda/gpu_backend.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

namespace {

std::string describe(const std::string& message, const char* layer, std::string reason, int number) {
  if (reason.empty()) reason = std::to_string(number);
  return message + " (" + layer + " failure: " + reason + ")";
}

}  // namespace

CudaError::CudaError(const std::string& message, int errorCode)
    : BaseError(describe(message, "Cuda", detail::cudaErrorText(errorCode), errorCode), errorCode) {}

CuError::CuError(const std::string& message, int errorCode)
    : BaseError(describe(message, "Cu", detail::cuErrorText(errorCode), errorCode), errorCode) {}

}  // namespace mscclpp
