// Exported functions: collectives and messages.
#include "kernels/nccl/newer_functions.hpp"
#include "kernels/nccl/submit.hpp"

using namespace mscclpp::nccl;

extern "C" {

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {.function = Function::AllReduce,
                       .sent = sendbuff,
                       .received = recvbuff,
                       .count = count,
                       .type = datatype,
                       .op = op,
                       .stream = stream});
}

ncclResult_t ncclAllReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return submit(comm, {.function = Function::AllReduce,
                       .sent = sendbuff,
                       .received = recvbuff,
                       .count = count,
                       .type = datatype,
                       .op = op,
                       .stream = stream,
                       .config = config});
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {.function = Function::ReduceScatter,
                       .sent = sendbuff,
                       .received = recvbuff,
                       .count = recvcount,
                       .type = datatype,
                       .op = op,
                       .stream = stream});
}

ncclResult_t ncclReduceScatterConfig(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                     const ncclCollConfig_t* config) {
  return submit(comm, {.function = Function::ReduceScatter,
                       .sent = sendbuff,
                       .received = recvbuff,
                       .count = recvcount,
                       .type = datatype,
                       .op = op,
                       .stream = stream,
                       .config = config});
}

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {.function = Function::Reduce,
                       .sent = sendbuff,
                       .received = recvbuff,
                       .count = count,
                       .type = datatype,
                       .op = op,
                       .root = root,
                       .stream = stream});
}

ncclResult_t ncclReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t* config) {
  return submit(comm, {.function = Function::Reduce,
                       .sent = sendbuff,
                       .received = recvbuff,
                       .count = count,
                       .type = datatype,
                       .op = op,
                       .root = root,
                       .stream = stream,
                       .config = config});
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {.function = Function::AllGather,
                       .sent = sendbuff,
                       .received = recvbuff,
                       .count = sendcount,
                       .type = datatype,
                       .stream = stream});
}

ncclResult_t ncclAllGatherConfig(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return submit(comm, {.function = Function::AllGather,
                       .sent = sendbuff,
                       .received = recvbuff,
                       .count = sendcount,
                       .type = datatype,
                       .stream = stream,
                       .config = config});
}

ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream) {
  return submit(comm, {.function = Function::AlltoAll,
                       .sent = sendbuff,
                       .received = recvbuff,
                       .count = count,
                       .type = datatype,
                       .stream = stream});
}

ncclResult_t ncclAlltoAllConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return submit(comm, {.function = Function::AlltoAll,
                       .sent = sendbuff,
                       .received = recvbuff,
                       .count = count,
                       .type = datatype,
                       .stream = stream,
                       .config = config});
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {.function = Function::Broadcast,
                       .sent = sendbuff,
                       .received = recvbuff,
                       .count = count,
                       .type = datatype,
                       .root = root,
                       .stream = stream});
}

ncclResult_t ncclBroadcastConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return submit(comm, {.function = Function::Broadcast,
                       .sent = sendbuff,
                       .received = recvbuff,
                       .count = count,
                       .type = datatype,
                       .root = root,
                       .stream = stream,
                       .config = config});
}

ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {.function = Function::Gather,
                       .sent = sendbuff,
                       .received = recvbuff,
                       .count = count,
                       .type = datatype,
                       .root = root,
                       .stream = stream});
}

ncclResult_t ncclGatherConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                              ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return submit(comm, {.function = Function::Gather,
                       .sent = sendbuff,
                       .received = recvbuff,
                       .count = count,
                       .type = datatype,
                       .root = root,
                       .stream = stream,
                       .config = config});
}

ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {.function = Function::Scatter,
                       .sent = sendbuff,
                       .received = recvbuff,
                       .count = count,
                       .type = datatype,
                       .root = root,
                       .stream = stream});
}

ncclResult_t ncclScatterConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return submit(comm, {.function = Function::Scatter,
                       .sent = sendbuff,
                       .received = recvbuff,
                       .count = count,
                       .type = datatype,
                       .root = root,
                       .stream = stream,
                       .config = config});
}

ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return submit(comm, {.function = Function::Bcast,
                       .sent = buff,
                       .received = buff,
                       .count = count,
                       .type = datatype,
                       .root = root,
                       .stream = stream});
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit(
      comm,
      {.function = Function::Send, .sent = sendbuff, .count = count, .type = datatype, .root = peer, .stream = stream});
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit(comm, {.function = Function::Recv,
                       .received = recvbuff,
                       .count = count,
                       .type = datatype,
                       .root = peer,
                       .stream = stream});
}

[[gnu::alias("ncclAllReduce")]] decltype(ncclAllReduce) pncclAllReduce;
[[gnu::alias("ncclAllReduceConfig")]] decltype(ncclAllReduceConfig) pncclAllReduceConfig;
[[gnu::alias("ncclReduceScatter")]] decltype(ncclReduceScatter) pncclReduceScatter;
[[gnu::alias("ncclReduceScatterConfig")]] decltype(ncclReduceScatterConfig) pncclReduceScatterConfig;
[[gnu::alias("ncclReduce")]] decltype(ncclReduce) pncclReduce;
[[gnu::alias("ncclReduceConfig")]] decltype(ncclReduceConfig) pncclReduceConfig;
[[gnu::alias("ncclAllGather")]] decltype(ncclAllGather) pncclAllGather;
[[gnu::alias("ncclAllGatherConfig")]] decltype(ncclAllGatherConfig) pncclAllGatherConfig;
[[gnu::alias("ncclAlltoAll")]] decltype(ncclAlltoAll) pncclAlltoAll;
[[gnu::alias("ncclAlltoAllConfig")]] decltype(ncclAlltoAllConfig) pncclAlltoAllConfig;
[[gnu::alias("ncclBroadcast")]] decltype(ncclBroadcast) pncclBroadcast;
[[gnu::alias("ncclBroadcastConfig")]] decltype(ncclBroadcastConfig) pncclBroadcastConfig;
[[gnu::alias("ncclGather")]] decltype(ncclGather) pncclGather;
[[gnu::alias("ncclGatherConfig")]] decltype(ncclGatherConfig) pncclGatherConfig;
[[gnu::alias("ncclScatter")]] decltype(ncclScatter) pncclScatter;
[[gnu::alias("ncclScatterConfig")]] decltype(ncclScatterConfig) pncclScatterConfig;
[[gnu::alias("ncclBcast")]] decltype(ncclBcast) pncclBcast;
[[gnu::alias("ncclSend")]] decltype(ncclSend) pncclSend;
[[gnu::alias("ncclRecv")]] decltype(ncclRecv) pncclRecv;

}  // extern "C"
