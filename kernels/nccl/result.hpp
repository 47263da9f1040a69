// Exceptions as results of the C API: none crosses it, and the last message is kept for ncclGetLastError.
#pragma once

#include <string>
#include <utility>

#include "kernels/nccl/types.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::nccl {

/// A failure with a result of its own.
class ApiError : public Error {
 public:
  ApiError(ncclResult_t result, const std::string& message)
      : Error(message, result == ncclInvalidArgument || result == ncclInvalidUsage ? ErrorCode::InvalidUsage
                                                                                   : ErrorCode::InternalError),
        result_(result),
        text_(message) {}
  ncclResult_t result() const noexcept { return result_; }
  /// Without the name of the code, which the API returns.
  const std::string& text() const noexcept { return text_; }

 private:
  ncclResult_t result_;
  std::string text_;
};

[[noreturn]] void throwInvalidArgument(const std::string& message);
[[noreturn]] void throwInvalidUsage(const std::string& message);
/// For what this library has no form of: ncclInvalidUsage.
[[noreturn]] void throwUnsupported(const std::string& what);

/// A result and the message that explains it.
struct Failure {
  ncclResult_t result;
  std::string message;
};
/// Of the exception that is being handled.
Failure describeException();

/// Keeps the message of a failed call, and logs it (LogLevel::Warn). Returns the result.
ncclResult_t report(const char* function, const Failure& failure) noexcept;
/// The message of the last failed call of any thread; empty before. Valid until the next call in this thread.
const char* lastMessage() noexcept;

/// Reports the exception that is being handled.
ncclResult_t reportException(const char* function) noexcept;

/// Runs the body of a function of the API; ncclSuccess unless it throws.
template <class Body>
ncclResult_t guarded(const char* function, Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return ncclSuccess;
  } catch (...) {
    return reportException(function);
  }
}

/// Throws unless a pointer that the caller passes is valid.
void requirePointer(const void* pointer, const char* name);

}  // namespace mscclpp::nccl
