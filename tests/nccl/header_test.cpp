// Compares this library's declarations with NCCL's own header: the compiler rejects a function that is declared twice
// with different types, and the types have the same sizes, offsets and values.
#include <doctest/doctest.h>
#include <nccl.h>

#include <climits>
#include <cstddef>
#include <cstdint>

#undef ncclResetDebugInit  // newer headers make nothing of it
#include "kernels/nccl/functions.hpp"
#if NCCL_VERSION_CODE >= 23200
#include "kernels/nccl/newer_functions.hpp"
#endif

namespace ours {
#include "kernels/nccl/types.hpp"
}  // namespace ours

namespace {

template <class Own, class Theirs>
constexpr bool isSame(Own own, Theirs theirs) {
  return static_cast<long long>(own) == static_cast<long long>(theirs) && sizeof own == sizeof theirs;
}

static_assert(sizeof(ours::ncclUniqueId) == sizeof(ncclUniqueId));
static_assert(isSame(ours::ncclSuccess, ncclSuccess) && isSame(ours::ncclUnhandledCudaError, ncclUnhandledCudaError) &&
              isSame(ours::ncclSystemError, ncclSystemError) && isSame(ours::ncclInternalError, ncclInternalError) &&
              isSame(ours::ncclInvalidArgument, ncclInvalidArgument) &&
              isSame(ours::ncclInvalidUsage, ncclInvalidUsage) && isSame(ours::ncclRemoteError, ncclRemoteError) &&
              isSame(ours::ncclInProgress, ncclInProgress));
static_assert(isSame(ours::ncclSum, ncclSum) && isSame(ours::ncclProd, ncclProd) && isSame(ours::ncclMax, ncclMax) &&
              isSame(ours::ncclMin, ncclMin) && isSame(ours::ncclAvg, ncclAvg) &&
              isSame(ours::ncclNumOps, ncclNumOps) && isSame(ours::ncclMaxRedOp, ncclMaxRedOp));
static_assert(isSame(ours::ncclInt8, ncclInt8) && isSame(ours::ncclChar, ncclChar) &&
              isSame(ours::ncclUint8, ncclUint8) && isSame(ours::ncclInt32, ncclInt32) &&
              isSame(ours::ncclInt, ncclInt) && isSame(ours::ncclUint32, ncclUint32) &&
              isSame(ours::ncclInt64, ncclInt64) && isSame(ours::ncclUint64, ncclUint64) &&
              isSame(ours::ncclFloat16, ncclFloat16) && isSame(ours::ncclHalf, ncclHalf) &&
              isSame(ours::ncclFloat32, ncclFloat32) && isSame(ours::ncclFloat, ncclFloat) &&
              isSame(ours::ncclFloat64, ncclFloat64) && isSame(ours::ncclDouble, ncclDouble) &&
              isSame(ours::ncclBfloat16, ncclBfloat16) && isSame(ours::ncclFloat8e4m3, ncclFloat8e4m3) &&
              isSame(ours::ncclFloat8e5m2, ncclFloat8e5m2) && isSame(ours::ncclNumTypes, ncclNumTypes));
static_assert(isSame(ours::ncclScalarDevice, ncclScalarDevice) &&
              isSame(ours::ncclScalarHostImmediate, ncclScalarHostImmediate));
static_assert(ours::mscclpp::nccl::splitNoColor == NCCL_SPLIT_NOCOLOR &&
              ours::mscclpp::nccl::undefinedInt == NCCL_CONFIG_UNDEF_INT &&
              ours::mscclpp::nccl::shrinkDefault == NCCL_SHRINK_DEFAULT &&
              ours::mscclpp::nccl::shrinkAbort == NCCL_SHRINK_ABORT);

using OurConfig = ours::ncclConfig_t;
static_assert(offsetof(OurConfig, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(OurConfig, version) == offsetof(ncclConfig_t, version) &&
              offsetof(OurConfig, blocking) == offsetof(ncclConfig_t, blocking) &&
              offsetof(OurConfig, cgaClusterSize) == offsetof(ncclConfig_t, cgaClusterSize) &&
              offsetof(OurConfig, minCTAs) == offsetof(ncclConfig_t, minCTAs) &&
              offsetof(OurConfig, maxCTAs) == offsetof(ncclConfig_t, maxCTAs) &&
              offsetof(OurConfig, netName) == offsetof(ncclConfig_t, netName) &&
              offsetof(OurConfig, splitShare) == offsetof(ncclConfig_t, splitShare) &&
              offsetof(OurConfig, trafficClass) == offsetof(ncclConfig_t, trafficClass) &&
              offsetof(OurConfig, commName) == offsetof(ncclConfig_t, commName) &&
              offsetof(OurConfig, collnetEnable) == offsetof(ncclConfig_t, collnetEnable) &&
              offsetof(OurConfig, CTAPolicy) == offsetof(ncclConfig_t, CTAPolicy) &&
              offsetof(OurConfig, shrinkShare) == offsetof(ncclConfig_t, shrinkShare) &&
              offsetof(OurConfig, nvlsCTAs) == offsetof(ncclConfig_t, nvlsCTAs) &&
              offsetof(OurConfig, nChannelsPerNetPeer) == offsetof(ncclConfig_t, nChannelsPerNetPeer) &&
              offsetof(OurConfig, nvlinkCentricSched) == offsetof(ncclConfig_t, nvlinkCentricSched));
static_assert(sizeof(ours::ncclSimInfo_t) == sizeof(ncclSimInfo_t) &&
              offsetof(ours::ncclSimInfo_t, estimatedTime) == offsetof(ncclSimInfo_t, estimatedTime));

#if NCCL_VERSION_CODE >= 23200
static_assert(isSame(ours::ncclTimeout, ncclTimeout));
static_assert(sizeof(OurConfig) == sizeof(ncclConfig_t) &&
              offsetof(OurConfig, graphUsageMode) == offsetof(ncclConfig_t, graphUsageMode) &&
              offsetof(OurConfig, nvlsHostMode) == offsetof(ncclConfig_t, nvlsHostMode));
using OurCollConfig = ours::ncclCollConfig_t;
static_assert(sizeof(OurCollConfig) == sizeof(ncclCollConfig_t) &&
              offsetof(OurCollConfig, ext) == offsetof(ncclCollConfig_t, ext) &&
              offsetof(OurCollConfig, algSelection) == offsetof(ncclCollConfig_t, algSelection) &&
              offsetof(OurCollConfig, forceAlgSelection) == offsetof(ncclCollConfig_t, forceAlgSelection) &&
              offsetof(OurCollConfig, launchCompletionEvent) == offsetof(ncclCollConfig_t, launchCompletionEvent));
static_assert(sizeof(ours::ncclEncryptionConfig_t) == sizeof(ncclEncryptionConfig_t) &&
              offsetof(ours::ncclEncryptionConfig_t, mode) == offsetof(ncclEncryptionConfig_t, mode));
static_assert(sizeof(ours::ncclWaitSignalDesc_t) == sizeof(ncclWaitSignalDesc_t));
#endif

}  // namespace

TEST_CASE("magic numbers") {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  CHECK(config.magic == ours::mscclpp::nccl::configMagic);
  const ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  CHECK(info.magic == ours::mscclpp::nccl::simInfoMagic);
}
