// Exported functions: memory, its registration, and operators.
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "kernels/nccl/comm_table.hpp"
#include "kernels/nccl/device.hpp"
#include "kernels/nccl/group.hpp"
#include "kernels/nccl/newer_functions.hpp"

using namespace mscclpp;
using namespace mscclpp::nccl;

namespace {

/// What ncclMemAlloc has allocated.
struct Allocations {
  std::mutex mutex;
  std::unordered_map<void*, std::shared_ptr<void>> owners;
};

// Never destroyed: what a program does not free goes with its process, and not after the driver.
Allocations& allocations() {
  static auto* const all = new Allocations;
  return *all;
}

}  // namespace

extern "C" {

ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
  return guarded("ncclMemAlloc", [&] {
    requirePointer(ptr, "ptr");
    *ptr = nullptr;
    if (size == 0) return;
    auto owner = allocate(size);
    void* const address = owner.get();
    const std::lock_guard lock(allocations().mutex);
    allocations().owners.emplace(address, std::move(owner));
    *ptr = address;
  });
}

ncclResult_t ncclMemFree(void* ptr) {
  return guarded("ncclMemFree", [&] {
    if (ptr == nullptr) return;
    std::shared_ptr<void> owner;  // released without the lock: freeing waits for the device
    const std::lock_guard lock(allocations().mutex);
    const auto found = allocations().owners.find(ptr);
    if (found == allocations().owners.end()) throwInvalidArgument("ncclMemAlloc did not return this pointer");
    owner = std::move(found->second);
    allocations().owners.erase(found);
  });
}

// One rank alone cannot make its memory known to the others: calls use the buffer without it.
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t /*size*/, void** handle) {
  return guarded("ncclCommRegister", [&] {
    requirePointer(buff, "buff");
    requirePointer(handle, "handle");
    findComm(comm);
    *handle = buff;
  });
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* /*handle*/) {
  return guarded("ncclCommDeregister", [&] { findComm(comm); });
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags) {
  return guardedInGroup("ncclCommWindowRegister", [&] {
    requirePointer(buff, "buff");
    requirePointer(win, "win");
    *win = nullptr;
    const auto found = findComm(comm);
    if (const ForwardedComm* forwarded = found->forwarded()) {
      return forwarded->check(forwarded->library().commWindowRegister(forwarded->handle(), buff, size, win, winFlags));
    }
    Group::ofThisThread().setUp(found, [=] { *win = found->registerWindow(buff, size, winFlags); });
  });
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  return guarded("ncclCommWindowDeregister", [&] {
    if (win == nullptr) return;
    const auto found = findComm(comm);
    if (const ForwardedComm* forwarded = found->forwarded()) {
      return forwarded->check(forwarded->library().commWindowDeregister(forwarded->handle(), win));
    }
    found->deregisterWindow(win);
  });
}

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr) {
  return guarded("ncclWinGetUserPtr", [&] {
    requirePointer(outUserPtr, "outUserPtr");
    *outUserPtr = findComm(comm)->windowAddress(win);
  });
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  return guarded("ncclRedOpCreatePreMulSum", [&] {
    requirePointer(op, "op");
    const auto found = findComm(comm);
    if (const ForwardedComm* forwarded = found->forwarded()) {
      return forwarded->check(
          forwarded->library().redOpCreatePreMulSum(op, scalar, datatype, residence, forwarded->handle()));
    }
    *op = found->operators().add(scalar, datatype, residence);
  });
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return guarded("ncclRedOpDestroy", [&] {
    const auto found = findComm(comm);
    if (const ForwardedComm* forwarded = found->forwarded()) {
      return forwarded->check(forwarded->library().redOpDestroy(op, forwarded->handle()));
    }
    found->operators().remove(op);
  });
}

[[gnu::alias("ncclMemAlloc")]] decltype(ncclMemAlloc) pncclMemAlloc;
[[gnu::alias("ncclMemFree")]] decltype(ncclMemFree) pncclMemFree;
[[gnu::alias("ncclCommRegister")]] decltype(ncclCommRegister) pncclCommRegister;
[[gnu::alias("ncclCommDeregister")]] decltype(ncclCommDeregister) pncclCommDeregister;
[[gnu::alias("ncclCommWindowRegister")]] decltype(ncclCommWindowRegister) pncclCommWindowRegister;
[[gnu::alias("ncclCommWindowDeregister")]] decltype(ncclCommWindowDeregister) pncclCommWindowDeregister;
[[gnu::alias("ncclWinGetUserPtr")]] decltype(ncclWinGetUserPtr) pncclWinGetUserPtr;
[[gnu::alias("ncclRedOpCreatePreMulSum")]] decltype(ncclRedOpCreatePreMulSum) pncclRedOpCreatePreMulSum;
[[gnu::alias("ncclRedOpDestroy")]] decltype(ncclRedOpDestroy) pncclRedOpDestroy;

}  // extern "C"
