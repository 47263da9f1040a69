// NCCL's own header, as a program includes it; where there is none, this library's declarations of the same functions.
#pragma once

#if __has_include(<nccl.h>)
#include <nccl.h>
#if NCCL_VERSION_CODE < 22809  // which has what older headers lack
extern "C" ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);
#endif
#if NCCL_VERSION_CODE < 22900
extern "C" {
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr);
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank, ncclComm_t* newcomm,
                          ncclConfig_t* config);
typedef struct {
  int opCnt;
  int peer;
  int sigIdx;
  int ctx;
} ncclWaitSignalDesc_t;
ncclResult_t ncclPutSignal(const void* localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
                           size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream);
}
#endif
#else
#include "kernels/nccl/newer_functions.hpp"
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_SPLIT_NOCOLOR -1
#define NCCL_WIN_COLL_SYMMETRIC 1
#define NCCL_SHRINK_DEFAULT 0
#define NCCL_SHRINK_ABORT 1
#define NCCL_CONFIG_INITIALIZER                                                                                      \
  {                                                                                                                  \
    sizeof(ncclConfig_t), 0xcafebeef, 22809, INT_MIN, INT_MIN, INT_MIN, INT_MIN, nullptr, INT_MIN, INT_MIN, nullptr, \
        INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN,  \
        INT_MIN, INT_MIN, INT_MIN                                                                                    \
  }
#endif
