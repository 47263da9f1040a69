// The NCCL that MSCCLPP_NCCL_LIB_PATH names, for communicators that this library cannot serve.
#pragma once

#include <atomic>

#include "kernels/nccl/api_call.hpp"
#include "kernels/nccl/config.hpp"
#include "kernels/nccl/functions.hpp"

namespace mscclpp::nccl {

/// Its functions, loaded so that it calls its own where this library exports the same names.
class RealNccl {
 public:
  /// Null if the variable is not set. Throws ncclInvalidUsage if the library cannot be loaded or is too old.
  static const RealNccl* find();
  /// The same if a communicator uses it already.
  static const RealNccl* findLoaded() noexcept;

 private:
  explicit RealNccl(const char* path);
  /// Throws ncclInvalidUsage if there is none of this name.
  template <class Pointer>
  void load(Pointer& pointer, const char* name) const;

  void* library_;  // never closed: it may leave threads running

 public:
  decltype(&ncclGetVersion) getVersion = nullptr;
  decltype(&ncclGetErrorString) getErrorString = nullptr;
  decltype(&ncclGetLastError) getLastError = nullptr;
  decltype(&ncclGetUniqueId) getUniqueId = nullptr;
  decltype(&ncclCommInitRankConfig) commInitRankConfig = nullptr;
  decltype(&ncclCommFinalize) commFinalize = nullptr;
  decltype(&ncclCommDestroy) commDestroy = nullptr;
  decltype(&ncclCommAbort) commAbort = nullptr;
  decltype(&ncclCommGetAsyncError) commGetAsyncError = nullptr;
  decltype(&ncclCommWindowRegister) commWindowRegister = nullptr;
  decltype(&ncclCommWindowDeregister) commWindowDeregister = nullptr;
  decltype(&ncclRedOpCreatePreMulSum) redOpCreatePreMulSum = nullptr;
  decltype(&ncclRedOpDestroy) redOpDestroy = nullptr;
  decltype(&ncclGroupStart) groupStart = nullptr;
  decltype(&ncclGroupEnd) groupEnd = nullptr;
  decltype(&ncclAllReduce) allReduce = nullptr;
  decltype(&ncclReduceScatter) reduceScatter = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclAllGather) allGather = nullptr;
  decltype(&ncclAlltoAll) allToAll = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclGather) gather = nullptr;
  decltype(&ncclScatter) scatter = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
};

/// A communicator of it.
class ForwardedComm {
 public:
  /// Collective.
  ForwardedComm(const RealNccl& library, const ncclUniqueId& id, int ranks, int rank, const CommConfig& config);
  ~ForwardedComm();
  ForwardedComm(const ForwardedComm&) = delete;
  ForwardedComm& operator=(const ForwardedComm&) = delete;

  /// Passes a call on as it is. Throws the library's result.
  void call(const ApiCall& call) const;
  /// For any other function of `library()`.
  void check(ncclResult_t result) const;

  const RealNccl& library() const noexcept { return library_; }
  /// Throws ncclInvalidUsage after abort().
  ncclComm_t handle() const;
  void finalize();
  /// Ends its calls, from any thread; the destructor then has nothing left to do.
  void abort() noexcept;

 private:
  const RealNccl& library_;
  std::atomic<ncclComm_t> handle_ = nullptr;  // null once it is aborted
  std::atomic<bool> isFinalized_ = false;
};

}  // namespace mscclpp::nccl
