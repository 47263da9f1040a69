#include "mscclpp/host/base/error.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <system_error>

namespace mscclpp {

namespace {

// std::strerror returns a shared buffer; the category's message does not.
std::string errnoText(int number) {
  return std::generic_category().message(number);
}

// How to raise the limit that was reached.
std::string remedyFor(int number) {
  if (number == EMFILE) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return ": this process may have " + std::to_string(limit.rlim_cur) + "; raise the limit with ulimit -n";
  }
  if (number == ENFILE) return ": raise the limit of the system, fs.file-max";
  return "";
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

BaseError::BaseError(const std::string& message, int errorCode)
    : std::runtime_error(message), message_(message), errorCode_(errorCode) {}

BaseError::BaseError(int errorCode) : BaseError("error " + std::to_string(errorCode), errorCode) {}

Error::Error(const std::string& message, ErrorCode errorCode)
    : BaseError(describe(message, "mscclpp", errorToString(errorCode)), static_cast<int>(errorCode)) {}

SysError::SysError(const std::string& message, int errorNumber)
    : BaseError(describe(message, "System", errnoText(errorNumber) + remedyFor(errorNumber)), errorNumber) {}

IbError::IbError(const std::string& message, int errorNumber)
    : BaseError(describe(message, "Ib", errnoText(errorNumber)), errorNumber) {}

}  // namespace mscclpp
