// Exceptions as results with NCCL's values.
#include "comm_result.hpp"

#include <exception>
#include <new>

#include "mscclpp/host/base/logger.hpp"

namespace mscclpp::kernels {

namespace {

CommResult resultOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidUsage:
      return CommResult::CommInvalidArgument;
    case ErrorCode::SystemError:
      return CommResult::CommSystemError;
    case ErrorCode::RemoteError:
    case ErrorCode::Timeout:
    case ErrorCode::Aborted:
      return CommResult::CommRemoteError;
    case ErrorCode::InternalError:
    case ErrorCode::ExecutorError:
      return CommResult::CommInternalError;
  }
  return CommResult::CommInternalError;
}

}  // namespace

FailedCall describeException() {
  try {
    throw;
  } catch (const UnavailableAlgorithm& error) {
    return {CommResult::CommInvalidUsage, error.what()};
  } catch (const Error& error) {
    return {resultOf(error.getErrorCode()), error.what()};
  } catch (const CudaError& error) {
    return {CommResult::CommUnhandledCudaError, error.what()};
  } catch (const CuError& error) {
    return {CommResult::CommUnhandledCudaError, error.what()};
  } catch (const BaseError& error) {
    return {CommResult::CommSystemError, error.what()};
  } catch (const std::bad_alloc&) {
    return {CommResult::CommSystemError, "out of memory"};
  } catch (const std::exception& error) {
    return {CommResult::CommInternalError, error.what()};
  } catch (...) {
    return {CommResult::CommInternalError, "an exception of unknown type was thrown"};
  }
}

CommResult resultOfException(const std::string& algorithm) noexcept {
  try {
    const FailedCall failed = describeException();
    logMessage(LogLevel::Error, LogSubsystem::Algo, "algorithm ", algorithm, ": ", failed.message);
    return failed.result;
  } catch (...) {
    return CommResult::CommInternalError;  // the log line could not be written
  }
}

}  // namespace mscclpp::kernels
