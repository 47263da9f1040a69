// Exported functions: groups.
#include "kernels/nccl/functions.hpp"
#include "kernels/nccl/group.hpp"
#include "kernels/nccl/profiler_range.hpp"

using namespace mscclpp::nccl;

extern "C" {

ncclResult_t ncclGroupStart() {
  return guarded("ncclGroupStart", [] { Group::ofThisThread().start(); });
}

ncclResult_t ncclGroupEnd() {
  return guarded("ncclGroupEnd", [] {
    const ProfilerRange range("ncclGroupEnd");
    Group::ofThisThread().end();
  });
}

// There is no model of the time that the calls would take: the field keeps NCCL's value for "unknown".
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo) {
  return guarded("ncclGroupSimulateEnd", [&] {
    if (simInfo != nullptr && (simInfo->magic != simInfoMagic || simInfo->size < sizeof *simInfo)) {
      throwInvalidArgument("the structure was not initialised: assign NCCL_SIM_INFO_INITIALIZER to it first");
    }
    Group::ofThisThread().drop();
    if (simInfo != nullptr) simInfo->estimatedTime = -1;
  });
}

[[gnu::alias("ncclGroupStart")]] decltype(ncclGroupStart) pncclGroupStart;
[[gnu::alias("ncclGroupEnd")]] decltype(ncclGroupEnd) pncclGroupEnd;
[[gnu::alias("ncclGroupSimulateEnd")]] decltype(ncclGroupSimulateEnd) pncclGroupSimulateEnd;

}  // extern "C"
