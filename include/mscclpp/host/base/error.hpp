// The exceptions of the host part: one hierarchy, each with a code and a message.
#pragma once

#include <stdexcept>
#include <string>

namespace mscclpp {

/// What kind of failure an `Error` reports.
enum class ErrorCode {
  SystemError,    ///< A system call failed.
  InternalError,  ///< An internal error of the library: please report it.
  RemoteError,    ///< Another rank failed, exited or sent invalid data.
  InvalidUsage,   ///< The caller's argument, order of calls or environment is wrong.
  Timeout,        ///< A blocking call timed out.
  Aborted,        ///< The object was shut down while the call was blocked.
  ExecutorError,  ///< An execution plan could not be run.
};

/// The name of a code, as it appears in messages ("Timeout"); "UnknownError" for a value outside the enumeration.
std::string errorToString(ErrorCode code);

/// Base class of all exceptions that the library throws on purpose.
class BaseError : public std::runtime_error {
 public:
  BaseError(const std::string& message, int errorCode);
  /// For an error without a message other than its number.
  explicit BaseError(int errorCode);

  /// The number of the failing layer: an ErrorCode, an errno, a cudaError_t or a CUresult.
  int getErrorCode() const noexcept { return errorCode_; }
  const char* what() const noexcept override { return message_.c_str(); }

 protected:
  std::string message_;  ///< what() returns it
  int errorCode_;
};

/// A failure detected by the library itself. Its text is "<message> (mscclpp failure: <code name>)".
class Error : public BaseError {
 public:
  Error(const std::string& message, ErrorCode errorCode);
  ErrorCode getErrorCode() const noexcept { return static_cast<ErrorCode>(BaseError::getErrorCode()); }
};

/// A failed system call: the number is an errno. Its text is "<message> (System failure: <text of errno>)".
class SysError : public BaseError {
 public:
  SysError(const std::string& message, int errorNumber);
};

/// A failed call of the CUDA runtime: the number is a cudaError_t, kept as int so that no CUDA header is needed here.
/// Its text is "<message> (Cuda failure: <text of cudaGetErrorString>)", or the number in a build without CUDA.
class CudaError : public BaseError {
 public:
  CudaError(const std::string& message, int errorCode);
};

/// A failed call of the CUDA driver: the number is a CUresult. Its text is "<message> (Cu failure: <text of
/// cuGetErrorString>)", or the number where there is no driver.
class CuError : public BaseError {
 public:
  CuError(const std::string& message, int errorCode);
};

/// A failed verbs call: the number is an errno. Its text is "<message> (Ib failure: <text of errno>)".
class IbError : public BaseError {
 public:
  IbError(const std::string& message, int errorNumber);
};

}  // namespace mscclpp
