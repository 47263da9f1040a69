#include "mscclpp/host/error.hpp"

#include <system_error>

#include "gpu_backend.hpp"

namespace mscclpp {

namespace {

// std::strerror keeps its text in shared memory; the category's message does not.
std::string errnoText(int number) {
  return std::generic_category().message(number);
}

std::string textOr(std::string text, int number) {
  return text.empty() ? std::to_string(number) : text;
}

std::string describe(const std::string& message, const char* layer, const std::string& reason) {
  return message + " (" + layer + " failure: " + reason + ")";
}

}  // namespace

std::string errorToString(ErrorCode code) {
  switch (code) {
    case ErrorCode::SystemError:
      return "SystemError";
    case ErrorCode::InternalError:
      return "InternalError";
    case ErrorCode::RemoteError:
      return "RemoteError";
    case ErrorCode::InvalidUsage:
      return "InvalidUsage";
    case ErrorCode::Timeout:
      return "Timeout";
    case ErrorCode::Aborted:
      return "Aborted";
    case ErrorCode::ExecutorError:
      return "ExecutorError";
  }
  return "UnknownError";
}

BaseError::BaseError(const std::string& message, int errorCode) : std::runtime_error(message), errorCode_(errorCode) {}

BaseError::BaseError(int errorCode) : BaseError("error " + std::to_string(errorCode), errorCode) {}

Error::Error(const std::string& message, ErrorCode errorCode)
    : BaseError(describe(message, "mscclpp", errorToString(errorCode)), static_cast<int>(errorCode)) {}

SysError::SysError(const std::string& message, int errorNumber)
    : BaseError(describe(message, "System", errnoText(errorNumber)), errorNumber) {}

CudaError::CudaError(const std::string& message, int errorCode)
    : BaseError(describe(message, "Cuda", textOr(detail::cudaErrorText(errorCode), errorCode)), errorCode) {}

CuError::CuError(const std::string& message, int errorCode)
    : BaseError(describe(message, "Cu", textOr(detail::cuErrorText(errorCode), errorCode)), errorCode) {}

IbError::IbError(const std::string& message, int errorNumber)
    : BaseError(describe(message, "Ib", errnoText(errorNumber)), errorNumber) {}

}  // namespace mscclpp
