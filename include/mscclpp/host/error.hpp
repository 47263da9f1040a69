// The exceptions that the host part throws: one family, each with a code and a sentence that says what to do.
#pragma once

#include <stdexcept>
#include <string>

namespace mscclpp {

/// What kind of failure an `Error` reports.
enum class ErrorCode {
  SystemError,    ///< The operating system refused a call.
  InternalError,  ///< The library contradicts itself: please report it.
  RemoteError,    ///< Another rank failed, died or sent nonsense.
  InvalidUsage,   ///< The caller's argument, order of calls or environment is wrong.
  Timeout,        ///< A blocking call passed its deadline.
  Aborted,        ///< The object was shut down while the call was waiting.
  ExecutorError,  ///< An execution plan could not be run.
};

/// The name of a code, as it appears in messages ("Timeout"); "UnknownError" for a value outside the enumeration.
std::string errorToString(ErrorCode code);

/// Root of the family: everything that the library throws on purpose derives from it. Errors are cheap to copy.
class BaseError : public std::runtime_error {
 public:
  BaseError(const std::string& message, int errorCode);
  /// For an error that has no more to say than its number.
  explicit BaseError(int errorCode);

  /// The number of the failing layer: an ErrorCode, an errno, a cudaError_t or a CUresult.
  int getErrorCode() const noexcept { return errorCode_; }

 private:
  int errorCode_;
};

/// A failure that the library itself noticed. Its text is "<message> (mscclpp failure: <code name>)".
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
