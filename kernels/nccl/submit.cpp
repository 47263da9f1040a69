#include "kernels/nccl/submit.hpp"

#include "kernels/nccl/call_counts.hpp"
#include "kernels/nccl/comm_table.hpp"
#include "kernels/nccl/element_type.hpp"
#include "kernels/nccl/group.hpp"
#include "kernels/nccl/profiler_range.hpp"

namespace mscclpp::nccl {

ncclResult_t submit(ncclComm_t handle, const ApiCall& call) noexcept {
  return guardedInGroup(nameOf(call.function), [&] {
    const auto comm = findComm(handle);
    if (const ForwardedComm* forwarded = comm->forwarded()) {
      comm->requireReady();
      const ProfilerRange range(nameOf(call.function));
      const auto type = findType(call.type);
      CallCounts::ofProcess().add(call.function, Route::Forwarded, type ? call.count * sizeOf(*type) : 0);
      return forwarded->call(call);
    }
    Group::ofThisThread().call(comm, comm->prepare(call));
  });
}

}  // namespace mscclpp::nccl
