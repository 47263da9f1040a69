// Exceptions as results of Algorithm::execute, logged.
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

CommResult logged(const std::string& algorithm, CommResult result, const char* message) {
  logMessage(LogLevel::Error, LogSubsystem::Algo, "algorithm ", algorithm, ": ", message);
  return result;
}

}  // namespace

CommResult resultOfException(const std::string& algorithm) noexcept {
  try {
    try {
      throw;
    } catch (const UnavailableAlgorithm& error) {
      return logged(algorithm, CommResult::CommInvalidUsage, error.what());
    } catch (const Error& error) {
      return logged(algorithm, resultOf(error.getErrorCode()), error.what());
    } catch (const CudaError& error) {
      return logged(algorithm, CommResult::CommUnhandledCudaError, error.what());
    } catch (const CuError& error) {
      return logged(algorithm, CommResult::CommUnhandledCudaError, error.what());
    } catch (const BaseError& error) {
      return logged(algorithm, CommResult::CommSystemError, error.what());
    } catch (const std::bad_alloc&) {
      return logged(algorithm, CommResult::CommSystemError, "out of memory");
    } catch (const std::exception& error) {
      return logged(algorithm, CommResult::CommInternalError, error.what());
    } catch (...) {
      return logged(algorithm, CommResult::CommInternalError, "an exception of unknown type was thrown");
    }
  } catch (...) {
    return CommResult::CommInternalError;  // the log line could not be written
  }
}

}  // namespace mscclpp::kernels
