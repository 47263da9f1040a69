// The types of NCCL's C API: the layouts and values of 2.28.9 to 2.32.3, which programs compiled against nccl.h pass.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

// tests/nccl compares every type here with NCCL's own header. Enumerations have an underlying type: every number that a
// caller may pass is then one of their values.

extern "C" {

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;

typedef struct ncclComm* ncclComm_t;
typedef struct ncclWindow_vidmem* ncclWindow_t;
typedef struct ncclParamHandle* ncclParamHandle_t;

typedef struct {
  char internal[128];
} ncclUniqueId;

typedef enum : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclTimeout = 8,  // from 2.30 on; before, the number of results
} ncclResult_t;

typedef enum : int {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,  // operators that a program creates start here
  ncclMaxRedOp = INT_MAX
} ncclRedOp_t;

typedef enum : int {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

typedef enum : int { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

/// Options of a communicator. It grew with the versions: the caller's has `size` bytes.
typedef struct ncclConfig {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;  // the last one of 2.28
  int graphUsageMode;
  int numRmaCtx;
  int maxP2pPeers;
  int graphStreamOrdering;
  int launchOrderImplicit;
  int numRmaSig;
  int rmaEagerInit;
  int hostCftMode;
  int nvlsHostMode;
} ncclConfig_t;

typedef struct ncclSimInfo {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime;  // microseconds
} ncclSimInfo_t;

/// Options of one collective.
typedef struct ncclCollConfig {
  size_t size;
  unsigned int magic;
  unsigned int version;
  struct ncclConfigExt* ext;
  int minCTAs;
  int maxCTAs;
  int nvlsCTAs;
  int cgaClusterSize;
  const char* algSelection;
  int forceAlgSelection;
  int CTAPolicy;
  uint64_t userProfilerTag;
  cudaEvent_t launchCompletionEvent;
} ncclCollConfig_t;

typedef struct ncclEncryptionConfig {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int mode;  // 0: none
  const char* psk;
} ncclEncryptionConfig_t;

typedef enum : int {
  ncclStatGpuMemSuspend = 0,
  ncclStatGpuMemSuspended = 1,
  ncclStatGpuMemPersist = 2,
  ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

typedef struct {
  int opCnt;
  int peer;
  int sigIdx;
  int ctx;
} ncclWaitSignalDesc_t;

}  // extern "C"

namespace mscclpp::nccl {

/// In the field `magic` of every structure of options.
inline constexpr unsigned int configMagic = 0xcafebeef;
inline constexpr unsigned int simInfoMagic = 0x74685283;
/// An option that the caller has not set.
inline constexpr int undefinedInt = INT_MIN;
inline constexpr int splitNoColor = -1;
inline constexpr int shrinkDefault = 0;
inline constexpr int shrinkAbort = 1;
inline constexpr int suspendMemory = 1;
/// A flag of windows: on all ranks, a call's buffer lies at the same offset of the window.
inline constexpr int windowSymmetric = 1;

}  // namespace mscclpp::nccl
