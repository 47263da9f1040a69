// Exported functions: one-sided messages and their signals.
#include <cstddef>
#include <span>

#include "kernels/nccl/comm_table.hpp"
#include "kernels/nccl/group.hpp"
#include "kernels/nccl/newer_functions.hpp"
#include "kernels/nccl/result.hpp"

using namespace mscclpp::nccl;

namespace {

/// Checks a call by `prepare(communicator)`, and enqueues it: now, or with the group that is open in this thread.
template <class Prepare>
ncclResult_t submitOneSided(Function function, ncclComm_t handle, const Prepare& prepare) {
  return guardedInGroup(nameOf(function), [&] {
    const auto comm = findComm(handle);
    if (comm->forwarded() != nullptr) throwUnsupported("one-sided communication between hosts");
    Group::ofThisThread().call(comm, prepare(*comm));
  });
}

void requireNoFlags(unsigned int flags) {
  if (flags != 0) throwInvalidArgument("flags must be 0");
}

}  // namespace

extern "C" {

ncclResult_t ncclPutSignal(const void* localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
                           size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                           cudaStream_t stream) {
  return submitOneSided(Function::PutSignal, comm, [&](const Comm& c) {
    requireNoFlags(flags);
    return c.preparePut({.function = Function::PutSignal,
                         .sent = localbuff,
                         .count = count,
                         .type = datatype,
                         .root = peer,
                         .stream = stream},
                        peerWin, peerWinOffset, {ctx, sigIdx});
  });
}

ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream) {
  return submitOneSided(Function::Signal, comm, [&](const Comm& c) {
    requireNoFlags(flags);
    return c.prepareSignal({.function = Function::Signal, .root = peer, .stream = stream}, {ctx, sigIdx});
  });
}

ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream) {
  return submitOneSided(Function::WaitSignal, comm, [&](const Comm& c) {
    if (nDesc < 0) throwInvalidArgument("nDesc is negative");
    if (nDesc > 0) requirePointer(signalDescs, "signalDescs");
    return c.prepareWait({.function = Function::WaitSignal, .stream = stream},
                         std::span<const ncclWaitSignalDesc_t>(signalDescs, static_cast<std::size_t>(nDesc)));
  });
}

[[gnu::alias("ncclPutSignal")]] decltype(ncclPutSignal) pncclPutSignal;
[[gnu::alias("ncclSignal")]] decltype(ncclSignal) pncclSignal;
[[gnu::alias("ncclWaitSignal")]] decltype(ncclWaitSignal) pncclWaitSignal;

}  // extern "C"
