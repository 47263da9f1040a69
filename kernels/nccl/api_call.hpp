// A call of a communication function of the C API: as the caller made it, and as it waits for the end of its group.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "kernels/nccl/one_sided_call.hpp"
#include "kernels/nccl/types.hpp"
#include "mscclpp/kernels/collective_call.hpp"

namespace mscclpp::nccl {

/// The functions that move data.
enum class Function {
  AllReduce,
  ReduceScatter,
  Reduce,
  AllGather,
  AlltoAll,
  Broadcast,
  Bcast,
  Gather,
  Scatter,
  Send,
  Recv,
  PutSignal,
  Signal,
  WaitSignal
};
inline constexpr int functions = 14;

constexpr const char* nameOf(Function function) {
  constexpr std::array<const char*, functions> names{
      "ncclAllReduce", "ncclReduceScatter", "ncclReduce", "ncclAllGather", "ncclAlltoAll",
      "ncclBroadcast", "ncclBcast",         "ncclGather", "ncclScatter",   "ncclSend",
      "ncclRecv",      "ncclPutSignal",     "ncclSignal", "ncclWaitSignal"};
  return names[static_cast<std::size_t>(function)];
}

/// The arguments as the caller passed them.
struct ApiCall {
  Function function;
  const void* sent = nullptr;
  void* received = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
  int root = 0;  ///< or the peer of a message
  cudaStream_t stream = nullptr;
  const ncclCollConfig_t* config = nullptr;
};

/// A call with checked arguments, in this library's terms; independent of anything of the caller's but the buffers.
struct PendingCall {
  Function function;
  CollectiveCall call;  ///< a message is a SendReceive with one direction, and so are one-sided calls
  bool hasHostFactor = false;
  alignas(8) std::array<std::byte, 8> factor{};    ///< then: of the reduction
  cudaEvent_t completionEvent = nullptr;           ///< to be recorded after it; null: none
  std::shared_ptr<const OneSidedCall> oneSided{};  ///< null for all other calls

  bool hasPeer() const { return call.collective == CollectiveType::SendReceive; }
  bool isMessage() const { return hasPeer() && oneSided == nullptr; }
  /// The peer of a call that has one.
  int peer() const { return call.destination >= 0 ? call.destination : call.origin; }
};

}  // namespace mscclpp::nccl
