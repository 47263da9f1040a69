// Exported functions: versions and errors.
#include "kernels/nccl/comm_table.hpp"
#include "kernels/nccl/functions.hpp"
#include "kernels/nccl/log.hpp"
#include "kernels/nccl/result.hpp"
#include "mscclpp/host/base/env.hpp"

using namespace mscclpp;
using namespace mscclpp::nccl;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  return guarded("ncclGetVersion", [&] {
    requirePointer(version, "version");
    *version = env()->ncclVersion;
  });
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a CUDA call failed (ncclGetLastError says which; NCCL_DEBUG=WARN logs it)";
    case ncclSystemError:
      return "a system call failed (ncclGetLastError says which; NCCL_DEBUG=WARN logs it)";
    case ncclInternalError:
      return "internal error of mscclpp (ncclGetLastError has the details)";
    case ncclInvalidArgument:
      return "invalid argument (ncclGetLastError says which; NCCL_DEBUG=WARN logs it)";
    case ncclInvalidUsage:
      return "invalid usage (ncclGetLastError says why; NCCL_DEBUG=WARN logs it)";
    case ncclRemoteError:
      return "another rank failed, or did not arrive in time (ncclGetLastError says which)";
    case ncclInProgress:
      return "the operation is in progress";
    case ncclTimeout:
      return "the operation timed out";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
  return lastMessage();
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  return guarded("ncclCommGetAsyncError", [&] {
    requirePointer(asyncError, "asyncError");
    const auto found = findComm(comm);
    const Failure failure = found->asyncError();
    *asyncError = failure.result;
    // Programs poll.
    if (failure.result != ncclSuccess && found->isFirstReport()) report("asynchronous error", failure);
  });
}

void ncclResetDebugInit() {}

[[gnu::alias("ncclGetVersion")]] decltype(ncclGetVersion) pncclGetVersion;
[[gnu::alias("ncclGetErrorString")]] decltype(ncclGetErrorString) pncclGetErrorString;
[[gnu::alias("ncclGetLastError")]] decltype(ncclGetLastError) pncclGetLastError;
[[gnu::alias("ncclCommGetAsyncError")]] decltype(ncclCommGetAsyncError) pncclCommGetAsyncError;
[[gnu::alias("ncclResetDebugInit")]] decltype(ncclResetDebugInit) pncclResetDebugInit;

}  // extern "C"
