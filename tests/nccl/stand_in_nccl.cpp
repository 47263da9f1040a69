// Stands in for the real NCCL in a test of forwarding: records the calls that arrive, and answers an all-reduce of one
// float with the number of ranks.
#include <cstdio>
#include <string>

#include "kernels/nccl/functions.hpp"

namespace {

std::string calls;
int groupDepth = 0;
int ranksOfComm = 0;

ncclResult_t record(const char* call) {
  calls += std::string(calls.empty() ? "" : " ") + call + (groupDepth > 0 ? "(group)" : "");
  return ncclSuccess;
}

}  // namespace

extern "C" {

/// For the test.
const char* standInCalls() {
  return calls.c_str();
}

ncclResult_t ncclGetVersion(int* version) {
  *version = 1;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t /*result*/) {
  return "an error of the stand-in";
}
const char* ncclGetLastError(ncclComm_t /*comm*/) {
  return "its last error";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  std::snprintf(uniqueId->internal, sizeof uniqueId->internal, "stand-in");
  return record("GetUniqueId");
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config) {
  static int handle = 0;
  if (std::string(commId.internal) != "stand-in" || rank < 0 || rank >= nranks) return ncclInvalidArgument;
  if (config->magic != mscclpp::nccl::configMagic || config->maxCTAs != 5) return ncclInvalidArgument;
  ranksOfComm = nranks;
  *comm = reinterpret_cast<ncclComm_t>(&handle);
  return record("InitRank");
}
ncclResult_t ncclCommFinalize(ncclComm_t /*comm*/) {
  return record("Finalize");
}
ncclResult_t ncclCommDestroy(ncclComm_t /*comm*/) {
  return record("Destroy");
}
ncclResult_t ncclCommAbort(ncclComm_t /*comm*/) {
  return record("Abort");
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t /*comm*/, ncclResult_t* asyncError) {
  *asyncError = ncclSystemError;
  return record("GetAsyncError");
}
ncclResult_t ncclCommWindowRegister(ncclComm_t /*comm*/, void* /*buff*/, size_t /*size*/, ncclWindow_t* /*win*/,
                                    int /*winFlags*/) {
  return record("WindowRegister");
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t /*comm*/, ncclWindow_t /*win*/) {
  return record("WindowDeregister");
}
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* /*scalar*/, ncclDataType_t /*datatype*/,
                                      ncclScalarResidence_t /*residence*/, ncclComm_t /*comm*/) {
  *op = static_cast<ncclRedOp_t>(77);
  return record("CreateOp");
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t /*comm*/) {
  return op == 77 ? record("DestroyOp") : ncclInvalidArgument;
}
ncclResult_t ncclGroupStart() {
  ++groupDepth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  --groupDepth;
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* /*sendbuff*/, void* recvbuff, size_t count, ncclDataType_t datatype,
                           ncclRedOp_t /*op*/, ncclComm_t /*comm*/, cudaStream_t /*stream*/) {
  if (count != 1 || datatype != ncclFloat32) return ncclInvalidArgument;
  *static_cast<float*>(recvbuff) = static_cast<float>(ranksOfComm);
  return record("AllReduce");
}
ncclResult_t ncclReduceScatter(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
  return record("ReduceScatter");
}
ncclResult_t ncclReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t) {
  return record("Reduce");
}
ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
  return record("AllGather");
}
ncclResult_t ncclAlltoAll(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
  return record("AlltoAll");
}
ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return record("Broadcast");
}
ncclResult_t ncclGather(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return record("Gather");
}
ncclResult_t ncclScatter(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return record("Scatter");
}
ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int peer, ncclComm_t, cudaStream_t) {
  return peer == 1 ? record("Send") : ncclInvalidArgument;
}
ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int peer, ncclComm_t, cudaStream_t) {
  return peer == 0 ? record("Recv") : ncclInvalidArgument;
}

}  // extern "C"
