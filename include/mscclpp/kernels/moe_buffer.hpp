// Dispatch and combine of a mixture of experts, compiled: a buffer for the calls of a layer, in the shape of DeepEP's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "mscclpp/moe/expert_rows.hpp"
#include "mscclpp/moe/row_session.hpp"

struct CUstream_st;

namespace mscclpp::moe {

/// What dispatch is given and what it delivers.
enum class RowFormat {
  Bf16,         ///< rows of 2-byte elements, unchanged
  Fp8,          ///< rows of e4m3 values and their scales, unchanged
  QuantiseBf16  ///< rows of bf16, delivered as e4m3 values and their scales (moe/row_source.hpp states the error)
};

/// The two forms of calls (docs/moe.md).
enum class Form {
  Bandwidth,  ///< dispatch() and combine()
  LowLatency  ///< lowLatencyDispatch() and lowLatencyCombine()
};

/// The most tokens of a low-latency call. Every block of it counts all tokens before each one that it sends, so that
/// with many its time would grow with their square.
inline constexpr std::uint32_t mostLowLatencyTokens = 1024;

/// What a Buffer is made for; the same on all ranks, but for numbers of blocks and bulk copies.
struct BufferConfig {
  std::uint32_t maxTokens = 0;  ///< the most tokens of a rank in dispatch(); 0: only low-latency calls
  /// The same in lowLatencyDispatch(), up to mostLowLatencyTokens; 0: none of these.
  std::uint32_t maxLowLatencyTokens = 0;
  int topk = 8;              ///< experts of a token, at most maxTopk
  int experts = 0;           ///< of all ranks, a multiple of their number
  std::uint32_t hidden = 0;  ///< elements of a row, a multiple of 8, for fp8 of 16
  RowFormat format = RowFormat::Bf16;
  std::uint32_t alignment = 1;  ///< of the rows of an expert, as dispatch() places them: 1 to 65536
  int blocks = 0;               ///< the most blocks of a kernel; 0: one for each multiprocessor that is free
  int lowLatencyBlocks = 0;     ///< the same of low-latency calls; 0: 128, or all if there are fewer
  /// dispatch() sends rows that are not quantised by bulk copies, on GPUs of sm_90 and newer: for few blocks.
  bool bulkCopies = false;
  /// So many blocks of a dispatch() that does not use them, and is not split, send to other ranks and do nothing else
  /// (DispatchArgs::sendingBlocks); 0: each block sends and receives.
  int sendingBlocks = 0;
  /// The same of a combine(); the others receive. -1: 5 of 11 (docs/moe.md).
  int combineSendingBlocks = -1;
};

/// Bytes of a row of a dispatch's output, scales included.
std::size_t rowBytes(const BufferConfig& config);

/// Rows for the output of dispatch() if nothing else is known: enough for every routing where they take up to 256 MiB;
/// else those of 256 MiB or, if that is more, twice as many as a routing needs that treats all ranks alike.
std::uint32_t defaultCapacity(const BufferConfig& config, int ranks);

/// Bytes on the device of each rank, for a buffer and its calls; allocations may be rounded up. docs/moe.md has them
/// for some sizes.
struct BufferMemory {
  std::size_t dispatches;        ///< scratch of dispatch() and lowLatencyDispatch(), which the buffer allocates
  std::size_t combines;          ///< the same of combine() and lowLatencyCombine()
  std::size_t workspace;         ///< what else it allocates, but for memory of blocks that is not shared memory
  std::size_t handle;            ///< Buffer::handleBytes()
  std::size_t output;            ///< rows of dispatch(), scales included, with defaultCapacity()
  std::size_t lowLatencyOutput;  ///< the same of lowLatencyDispatch(), with Buffer::lowLatencyCapacity()
};
/// Allocates nothing. Throws Error(InvalidUsage) for a configuration that a Buffer of so many ranks refuses.
BufferMemory memoryFor(const BufferConfig& config, int ranks);

/// This rank's tokens. Arrays on the buffer's device, rows at multiples of 16 bytes.
struct Tokens {
  const void* rows = nullptr;             ///< [tokens][hidden]
  const float* scales = nullptr;          ///< [tokens][scaleGroups()], for RowFormat::Fp8
  const std::int64_t* experts = nullptr;  ///< [tokens][topk]; -1: a dropped choice
  const float* weights = nullptr;         ///< [tokens][topk]; null: all 1
  std::uint32_t tokens = 0;               ///< may be 0

  friend bool operator==(const Tokens&, const Tokens&) = default;
};

/// Where a rank gets the rows of its experts: see ExpertPlacement. Arrays on the buffer's device.
struct ExpertBatch {
  void* rows = nullptr;              ///< [capacity][hidden], at a multiple of 16 bytes
  float* scales = nullptr;           ///< [capacity][scaleGroups()], but for RowFormat::Bf16
  std::uint32_t* counts = nullptr;   ///< [experts of the rank]: rows of each
  std::uint32_t* offsets = nullptr;  ///< [experts of the rank + 1]: first row of each
  RowOrigin* origins = nullptr;      ///< [capacity], at a multiple of 16 bytes; null: not written
  std::uint32_t capacity = 0;        ///< rows; if a rank gets more, the call fails on all: check() names it and throws

  friend bool operator==(const ExpertBatch&, const ExpertBatch&) = default;
};

/// Who gets this rank's tokens. Arrays on the buffer's device.
struct TokenLayout {
  std::uint32_t* tokensPerRank = nullptr;    ///< [ranks]
  std::uint32_t* tokensPerExpert = nullptr;  ///< [experts]
  std::int32_t* rankIndex = nullptr;         ///< [tokens][ranks]: at least 0 where the token is for the rank
  std::int32_t* expertIndex = nullptr;       ///< [tokens][topk]: see RoutingLayout
};

class Buffer;

/// What a combine has to know of its dispatch: the buffer, the form, and arrays on the device. It may be used again for
/// another dispatch, once the combine of the one before has been received. Copies are the same handle.
class DispatchHandle {
 public:
  /// The arrays; its identity is that of the dispatch that was enqueued last, before the first one 0. Throws
  /// Error(InvalidUsage) if the handle is empty.
  const Handle& view() const;

 private:
  friend class Buffer;
  struct Record;
  std::shared_ptr<Record> record_;
};

/// The second half of a low-latency call, which it enqueues on the stream of the first: what is enqueued before it is
/// called runs while the rows travel. The arrays of the call must live until it has run. Called once, before the next
/// call of the same kind and form, such as the next lowLatencyDispatch(): that one throws otherwise, and so does a
/// second call of the hook, or one after the buffer is gone. Empty if the call was not split.
using ReceiveHook = std::function<void()>;

/// Owns the scratch of dispatches and combines on all ranks. Each kind of call has its own, so that a dispatch may
/// follow another before their combines. All ranks make the same calls in the same order, also ranks without tokens. On
/// DeviceType::GPU a call enqueues a kernel on the stream; it neither waits nor allocates, and graphs can capture and
/// replay it. All its blocks must be resident at once: it waits for the other ranks' kernels. The buffer shares the
/// multiprocessors of its GPU with the Collectives and other buffers of the process, as docs/collectives.md says
/// ("Several objects on a GPU"); kernels of others must end by themselves. On DeviceType::CPU the calling thread does
/// the work.
///
/// The two forms differ in where the rows of experts are placed: dispatch() packs them, aligned to config.alignment;
/// lowLatencyDispatch() begins expert e at row e * ranks * maxLowLatencyTokens.
///
/// Methods throw Error(InvalidUsage) for wrong arguments and calls in a wrong order, CudaError, and after a failure
/// what check() throws. On GPUs calls are on one stream at a time, with the buffer's device current; on CPU ranks in
/// one thread at a time. The object must outlive its calls, on all ranks: synchronise before it is destroyed.
class Buffer {
 public:
  /// Collective: called by all ranks of the communicator, which are on one host; on GPUs this rank uses the current
  /// device. monitor: watches the waits; null: one of its own.
  Buffer(Communicator& communicator, DeviceType where, const BufferConfig& config,
         std::shared_ptr<WaitMonitor> monitor = nullptr);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  const BufferConfig& config() const noexcept;
  int rank() const noexcept;
  int ranks() const noexcept;
  /// Scales of a row.
  std::uint32_t scaleGroups() const noexcept;
  /// Rows that are enough for every routing, in dispatch() and in lowLatencyDispatch(), which needs as many.
  std::uint32_t largestCapacity() const noexcept;
  std::uint32_t lowLatencyCapacity() const noexcept;
  /// moe::defaultCapacity() and moe::rowBytes() of this buffer.
  std::uint32_t defaultCapacity() const noexcept;
  std::size_t rowBytes() const noexcept;
  /// Bytes that the buffer itself has allocated on this rank's device.
  std::size_t scratchBytes() const noexcept;

  /// Memory for the handle of a dispatch of either form. Allocates.
  DispatchHandle makeHandle() const;
  /// The same in memory of the caller's, of handleBytes() bytes at a multiple of 16, which must outlive the handle.
  DispatchHandle makeHandle(void* memory) const;
  /// The handle of a dispatch of `tokens` tokens that has been received with a handle in that memory, for its combine.
  DispatchHandle restoreHandle(void* memory, Form form, std::uint32_t tokens) const;
  std::size_t handleBytes() const noexcept;

  /// Computes who gets tokens.experts; the other members of `tokens` are not used but for the count. No communication:
  /// dispatches do it by themselves.
  void getDispatchLayout(const Tokens& tokens, const TokenLayout& layout, CUstream_st* stream = nullptr);

  /// The bandwidth form, for many tokens (Dispatch and Combine over StoreTransport). With Phase::Send and then
  /// Phase::Receive a call is in two parts, with the same arguments, and no other call of its kind between them.
  void dispatch(const Tokens& tokens, const ExpertBatch& batch, DispatchHandle& handle, CUstream_st* stream = nullptr,
                Phase phase = Phase::Both);
  /// results: [capacity][hidden] of bf16, rows as dispatch() placed them. output: [tokens][hidden] of bf16.
  void combine(const void* results, void* output, const DispatchHandle& handle, CUstream_st* stream = nullptr,
               Phase phase = Phase::Both);

  /// The low-latency form, for few tokens (over PacketTransport<Sentinel>). returnsHook: the call only sends.
  ReceiveHook lowLatencyDispatch(const Tokens& tokens, const ExpertBatch& batch, DispatchHandle& handle,
                                 CUstream_st* stream = nullptr, bool returnsHook = false);
  ReceiveHook lowLatencyCombine(const void* results, void* output, const DispatchHandle& handle,
                                CUstream_st* stream = nullptr, bool returnsHook = false);

  /// Throws what WaitMonitor::check throws if a wait of an earlier call failed. On GPUs call it after synchronising the
  /// stream. The object can no longer be used then.
  void check() const;

 private:
  friend class DispatchHandle;  // its record knows the state
  class State;
  std::shared_ptr<State> state_;  // hooks and handles know whether it exists
};

}  // namespace mscclpp::moe
