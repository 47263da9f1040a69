#include "kernels/nccl/result.hpp"

#include <mutex>

#include "kernels/comm_result.hpp"
#include "kernels/nccl/log.hpp"
#include "kernels/nccl/thread_value.hpp"

namespace mscclpp::nccl {

namespace {

struct LastMessage {
  std::mutex mutex;
  std::string text;
};

// Never destroyed: programs end communicators in destructors of static objects.
LastMessage& last() {
  static auto* const message = new LastMessage;
  return *message;
}

/// Of the exception that is being handled. The abort of a peer is an Error(RemoteError).
bool isOwnAbort() {
  try {
    throw;
  } catch (const Error& error) {
    return error.getErrorCode() == ErrorCode::Aborted;
  } catch (...) {
    return false;
  }
}

}  // namespace

void throwInvalidArgument(const std::string& message) {
  throw ApiError(ncclInvalidArgument, message);
}
void throwInvalidUsage(const std::string& message) {
  throw ApiError(ncclInvalidUsage, message);
}
void throwUnsupported(const std::string& what) {
  throwInvalidUsage(what +
                    " is not part of mscclpp's implementation of NCCL's API (docs/nccl.md lists what is): use NCCL for "
                    "programs that need it");
}

Failure describeException() {
  try {
    throw;
  } catch (const ApiError& error) {
    return {error.result(), error.text()};
  } catch (...) {
    const kernels::FailedCall failed = kernels::describeException();
    if (isOwnAbort()) {
      return {ncclInvalidUsage,
              "this rank has aborted or revoked a communicator while the call waited: " + failed.message};
    }
    return {static_cast<ncclResult_t>(failed.result), failed.message};
  }
}

ncclResult_t report(const char* function, const Failure& failure) noexcept {
  try {
    const std::string text = std::string(function) + ": " + failure.message;
    log(LogLevel::Warn, text);
    const std::lock_guard lock(last().mutex);
    last().text = text;
  } catch (...) {  // out of memory: the result must do
  }
  return failure.result;
}

ncclResult_t reportException(const char* function) noexcept {
  try {
    return report(function, describeException());
  } catch (...) {
    return ncclSystemError;
  }
}

const char* lastMessage() noexcept {
  try {
    std::string& copy = ThreadValue<std::string>::get();
    const std::lock_guard lock(last().mutex);
    copy = last().text;
    return copy.c_str();
  } catch (...) {
    return "";
  }
}

void requirePointer(const void* pointer, const char* name) {
  if (pointer == nullptr) throwInvalidArgument(std::string(name) + " is null");
}

}  // namespace mscclpp::nccl
