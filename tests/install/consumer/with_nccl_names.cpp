// A program written for NCCL: an all-reduce of the only rank there is, on a CPU. Where nccl.h is not installed, it
// declares what it calls.
#if __has_include(<nccl.h>)
#include <nccl.h>
#else
extern "C" {
typedef struct ncclComm* ncclComm_t;
typedef struct {
  char internal[128];
} ncclUniqueId;
typedef enum : int { ncclSuccess = 0 } ncclResult_t;
typedef enum : int { ncclSum = 0 } ncclRedOp_t;
typedef enum : int { ncclFloat32 = 7 } ncclDataType_t;
ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, unsigned long count, ncclDataType_t datatype,
                           ncclRedOp_t op, ncclComm_t comm, struct CUstream_st* stream);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
}
#endif

#include <cstdlib>

int main() {
  ::setenv("MSCCLPP_NCCL_DEVICE", "cpu", 1);
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  if (ncclGetUniqueId(&id) != ncclSuccess || ncclCommInitRank(&comm, 1, id, 0) != ncclSuccess) return 1;
  const float input[3] = {1, 2, 3};
  float output[3] = {};
  if (ncclAllReduce(input, output, 3, ncclFloat32, ncclSum, comm, nullptr) != ncclSuccess) return 1;
  if (ncclCommDestroy(comm) != ncclSuccess) return 1;
  return output[0] == 1 && output[1] == 2 && output[2] == 3 ? 0 : 1;
}
