// Exported functions: collectives and messages.
#include "kernels/nccl/newer_functions.hpp"
#include "kernels/nccl/submit.hpp"

using namespace mscclpp::nccl;

namespace {

constexpr int noRoot = 0;
constexpr const ncclCollConfig_t* noConfig = nullptr;

/// A call of a collective that moves data.
ApiCall moveOf(Function function, const void* sent, void* received, size_t count, ncclDataType_t type, int root,
               cudaStream_t stream, const ncclCollConfig_t* config) {
  return {.function = function,
          .sent = sent,
          .received = received,
          .count = count,
          .type = type,
          .root = root,
          .stream = stream,
          .config = config};
}

/// A call of a collective that reduces.
ApiCall reductionOf(Function function, const void* sent, void* received, size_t count, ncclDataType_t type,
                    ncclRedOp_t op, int root, cudaStream_t stream, const ncclCollConfig_t* config) {
  ApiCall call = moveOf(function, sent, received, count, type, root, stream, config);
  call.op = op;
  return call;
}

}  // namespace

extern "C" {

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(comm,
                reductionOf(Function::AllReduce, sendbuff, recvbuff, count, datatype, op, noRoot, stream, noConfig));
}

ncclResult_t ncclAllReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return submit(comm,
                reductionOf(Function::AllReduce, sendbuff, recvbuff, count, datatype, op, noRoot, stream, config));
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, reductionOf(Function::ReduceScatter, sendbuff, recvbuff, recvcount, datatype, op, noRoot, stream,
                                  noConfig));
}

ncclResult_t ncclReduceScatterConfig(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                     const ncclCollConfig_t* config) {
  return submit(
      comm, reductionOf(Function::ReduceScatter, sendbuff, recvbuff, recvcount, datatype, op, noRoot, stream, config));
}

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, reductionOf(Function::Reduce, sendbuff, recvbuff, count, datatype, op, root, stream, noConfig));
}

ncclResult_t ncclReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t* config) {
  return submit(comm, reductionOf(Function::Reduce, sendbuff, recvbuff, count, datatype, op, root, stream, config));
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, moveOf(Function::AllGather, sendbuff, recvbuff, sendcount, datatype, noRoot, stream, noConfig));
}

ncclResult_t ncclAllGatherConfig(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return submit(comm, moveOf(Function::AllGather, sendbuff, recvbuff, sendcount, datatype, noRoot, stream, config));
}

ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream) {
  return submit(comm, moveOf(Function::AlltoAll, sendbuff, recvbuff, count, datatype, noRoot, stream, noConfig));
}

ncclResult_t ncclAlltoAllConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return submit(comm, moveOf(Function::AlltoAll, sendbuff, recvbuff, count, datatype, noRoot, stream, config));
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, moveOf(Function::Broadcast, sendbuff, recvbuff, count, datatype, root, stream, noConfig));
}

ncclResult_t ncclBroadcastConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return submit(comm, moveOf(Function::Broadcast, sendbuff, recvbuff, count, datatype, root, stream, config));
}

ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, moveOf(Function::Gather, sendbuff, recvbuff, count, datatype, root, stream, noConfig));
}

ncclResult_t ncclGatherConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                              ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return submit(comm, moveOf(Function::Gather, sendbuff, recvbuff, count, datatype, root, stream, config));
}

ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, moveOf(Function::Scatter, sendbuff, recvbuff, count, datatype, root, stream, noConfig));
}

ncclResult_t ncclScatterConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return submit(comm, moveOf(Function::Scatter, sendbuff, recvbuff, count, datatype, root, stream, config));
}

ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return submit(comm, moveOf(Function::Bcast, buff, buff, count, datatype, root, stream, noConfig));
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
