#include "kernels/nccl/forwarded_comm.hpp"

#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <string>

#include "kernels/nccl/result.hpp"
#include "mscclpp/host/base/env.hpp"

namespace mscclpp::nccl {

namespace {

std::atomic<const RealNccl*> loaded = nullptr;

}  // namespace

const RealNccl* RealNccl::find() {
  if (env()->ncclSharedLibPath.empty()) return nullptr;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (loaded == nullptr) loaded = new RealNccl(env()->ncclSharedLibPath.c_str());
  return loaded;
}

const RealNccl* RealNccl::findLoaded() noexcept {
  return loaded.load(std::memory_order_acquire);
}

// RTLD_DEEPBIND: a public function that NCCL calls itself must be its own, and not ours, which has the same name.
RealNccl::RealNccl(const char* path) : library_(::dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)) {
  if (library_ == nullptr) {
    const char* reason = ::dlerror();
    throwInvalidUsage(std::string("cannot load NCCL: ") + (reason == nullptr ? path : reason) +
                      "; set MSCCLPP_NCCL_LIB_PATH to the path of its library");
  }
  load(getVersion, "ncclGetVersion");
  load(getErrorString, "ncclGetErrorString");
  load(getLastError, "ncclGetLastError");
  load(getUniqueId, "ncclGetUniqueId");
  load(commInitRankConfig, "ncclCommInitRankConfig");
  load(commFinalize, "ncclCommFinalize");
  load(commDestroy, "ncclCommDestroy");
  load(commAbort, "ncclCommAbort");
  load(commGetAsyncError, "ncclCommGetAsyncError");
  load(commWindowRegister, "ncclCommWindowRegister");
  load(commWindowDeregister, "ncclCommWindowDeregister");
  load(redOpCreatePreMulSum, "ncclRedOpCreatePreMulSum");
  load(redOpDestroy, "ncclRedOpDestroy");
  load(groupStart, "ncclGroupStart");
  load(groupEnd, "ncclGroupEnd");
  load(allReduce, "ncclAllReduce");
  load(reduceScatter, "ncclReduceScatter");
  load(reduce, "ncclReduce");
  load(allGather, "ncclAllGather");
  load(allToAll, "ncclAlltoAll");
  load(broadcast, "ncclBroadcast");
  load(gather, "ncclGather");
  load(scatter, "ncclScatter");
  load(send, "ncclSend");
  load(receive, "ncclRecv");
}

template <class Pointer>
void RealNccl::load(Pointer& pointer, const char* name) const {
  pointer = reinterpret_cast<Pointer>(::dlsym(library_, name));
  if (pointer == nullptr) {
    throwInvalidUsage(std::string("the library that MSCCLPP_NCCL_LIB_PATH names has no ") + name +
                      ": use NCCL 2.28 or newer");
  }
}

ForwardedComm::ForwardedComm(const RealNccl& library, const ncclUniqueId& id, int ranks, int rank,
                             const CommConfig& config)
    : library_(library) {
  ncclConfig_t options = toNcclConfig(config);
  ncclComm_t handle = nullptr;
  const ncclResult_t result = library.commInitRankConfig(&handle, ranks, id, rank, &options);
  handle_ = handle;
  check(result);
}

ForwardedComm::~ForwardedComm() {
  const ncclComm_t handle = handle_.exchange(nullptr);
  if (handle == nullptr) return;
  if (!isFinalized_) static_cast<void>(library_.commFinalize(handle));
  static_cast<void>(library_.commDestroy(handle));
}

ncclComm_t ForwardedComm::handle() const {
  const ncclComm_t handle = handle_;
  if (handle == nullptr) throwInvalidUsage("the communicator was revoked or aborted: make a new one");
  return handle;
}

void ForwardedComm::finalize() {
  const ncclComm_t own = handle();
  if (!isFinalized_.exchange(true)) check(library_.commFinalize(own));
}

void ForwardedComm::check(ncclResult_t result) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw ApiError(result,
                 std::string("NCCL: ") + library_.getErrorString(result) + ": " + library_.getLastError(handle_));
}

void ForwardedComm::abort() noexcept {
  if (const ncclComm_t handle = handle_.exchange(nullptr)) static_cast<void>(library_.commAbort(handle));
}

void ForwardedComm::call(const ApiCall& c) const {
  const ncclComm_t comm = handle();
  const auto perform = [&]() -> ncclResult_t {
    switch (c.function) {
      case Function::AllReduce:
        return library_.allReduce(c.sent, c.received, c.count, c.type, c.op, comm, c.stream);
      case Function::ReduceScatter:
        return library_.reduceScatter(c.sent, c.received, c.count, c.type, c.op, comm, c.stream);
      case Function::Reduce:
        return library_.reduce(c.sent, c.received, c.count, c.type, c.op, c.root, comm, c.stream);
      case Function::AllGather:
        return library_.allGather(c.sent, c.received, c.count, c.type, comm, c.stream);
      case Function::AlltoAll:
        return library_.allToAll(c.sent, c.received, c.count, c.type, comm, c.stream);
      case Function::Broadcast:
      case Function::Bcast:
        return library_.broadcast(c.sent, c.received, c.count, c.type, c.root, comm, c.stream);
      case Function::Gather:
        return library_.gather(c.sent, c.received, c.count, c.type, c.root, comm, c.stream);
      case Function::Scatter:
        return library_.scatter(c.sent, c.received, c.count, c.type, c.root, comm, c.stream);
      case Function::Send:
        return library_.send(c.sent, c.count, c.type, c.root, comm, c.stream);
      case Function::Recv:
        return library_.receive(c.received, c.count, c.type, c.root, comm, c.stream);
      case Function::PutSignal:
      case Function::Signal:
      case Function::WaitSignal:
        throwUnsupported("one-sided communication between hosts");
    }
    return ncclInternalError;
  };
  check(perform());
}

}  // namespace mscclpp::nccl
