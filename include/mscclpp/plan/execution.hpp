// What the execution of a plan works on: its arguments, and the words that its calls keep in device memory.
#pragma once

#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/channel/port.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/plan/message.hpp"
#include "mscclpp/plan/operation.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp::plan {

/// The format of packets: a parameter of a call.
enum class PacketFormat : std::uint32_t { LL8, LL16 };

/// Bytes of the packets for `bytes` bytes of data.
MSCCLPP_INLINE constexpr std::uint64_t packetBytes(PacketFormat format, std::uint64_t bytes) {
  return format == PacketFormat::LL8 ? (bytes + 3) / 4 * 8 : (bytes + 7) / 8 * 16;
}
static_assert(packetBytes(PacketFormat::LL8, 8) == 16 && packetBytes(PacketFormat::LL16, 8) == 16,
              "Place::further() holds for both formats");

/// This rank's end of a channel (operation.hpp: Channel). In device memory.
struct ChannelEnd {
  Access access;
  std::int32_t peer;
  std::uint64_t* outbound;                       ///< Memory: the peer's counter
  std::uint64_t* inbound;                        ///< the counter of this rank, which the peer increments
  std::uint64_t* consumed;                       ///< local: the number of signals that waits have consumed
  BasicBasePortChannelHandle<WideTrigger> port;  ///< Port
};

/// A buffer of a rank as the proxy service knows it.
struct PortMemory {
  std::uint64_t offset;  ///< of the buffer in the memory
  MemoryId id;
};

/// The operations of a block for the interpreter (rank_program.hpp: stepsOf); they refer to the operands and references
/// that follow, each to those behind its predecessor's, sources before destinations. References of Signal, Wait and
/// Flush are indices into ExecutionArgs::channels.
struct BlockProgram {
  const Operation* operations;
  const Operand* operands;
  const std::int32_t* references;
  const Range* windows;  ///< of each operation, those that are in shared memory with it: windowsOf()
  std::int32_t operationCount;
  std::int32_t operandCount;
  std::int32_t referenceCount;
};

/// What calls keep, in this rank's memory, for one executor and stream: never shared. All words are 0 at first, but the
/// epochs, which are 1, and the semaphores, which have the values of the plan.
struct ExecutionState {
  std::uint64_t* epochs;      ///< of each block: the number of its next call; `stopped`: a wait of it has failed
  GridBarrier* barriers;      ///< by Operation::index
  std::uint64_t* semaphores;  ///< the device semaphores of the rank

  /// The mark of a block that does nothing any more: what it would tell others is not true.
  static constexpr std::uint64_t stopped = std::uint64_t{1} << 63;
};

/// The arguments of the execution of a plan by one rank. A value, of at most the size of a kernel's parameters.
struct ExecutionArgs {
  Window<> buffers[3];  ///< by BufferKind: of all ranks, as far as mapped; of this rank always
  Message message;
  std::uint64_t slotPitch;    ///< between the chunks of the scratch
  std::uint64_t scratchHalf;  ///< doubleScratch: from one half to the other; otherwise 0
  ExecutionState state;
  const ChannelEnd* channels;    ///< of the rank
  const PortMemory* memories;    ///< [BufferKind * ranks + rank]; null without Port channels
  const BlockProgram* programs;  ///< of each block, for the interpreter; null otherwise
  std::int32_t rank;
  std::int32_t ranks;
  PacketFormat format;
  RuntimeOp op;
  BoundedWait wait;
};

/// The iteration of a loop that a block is in.
struct Iteration {
  std::uint64_t unit = 0;  ///< bytes of a chunk that one iteration handles; 0: not in a loop
  std::uint64_t index = 0;
};

/// The bytes of chunk `i` of the operands of an operation that the block transfers.
MSCCLPP_INLINE ByteSpan spanOf(const Message& message, const Operation& operation, std::int32_t i,
                               const Iteration& iteration) {
  std::int32_t position = operation.position + i;
  if (position >= message.chunksPerPart) position %= message.chunksPerPart;
  const ByteSpan piece = iterationOf(message.bytesAt(position), iteration.unit, iteration.index);
  return shareOf(piece, operation.share, operation.shares);
}

/// Where chunk `chunk` of the buffer of an operand begins, from the buffer's beginning, in bytes; of scratch that
/// alternates, in the half of even calls.
MSCCLPP_INLINE std::uint64_t offsetOf(const ExecutionArgs& args, const Message& message, const Operand& operand,
                                      std::int32_t chunk) {
  if (operand.buffer != BufferKind::Scratch) return message.offsetOf(chunk);
  return static_cast<std::uint64_t>(chunk) * args.slotPitch;
}
MSCCLPP_INLINE std::byte* addressOf(const ExecutionArgs& args, const Message& message, const Operand& operand,
                                    std::int32_t chunk) {
  return args.buffers[static_cast<int>(operand.buffer)].at(operand.rank, offsetOf(args, message, operand, chunk));
}

/// The flag of the packets of a call: never 0.
MSCCLPP_INLINE constexpr std::uint32_t flagOf(std::uint64_t epoch) {
  return static_cast<std::uint32_t>(epoch % 0xffffffffu) + 1;
}

/// Where the thread waits, as its record names it. `operation`: of the block.
struct PlanSite {
  std::int32_t rank;
  std::uint32_t block;
  std::uint32_t operation;

  MSCCLPP_INLINE WaitSite waitFor(WaitOperation what, std::int32_t peer, std::uint64_t expected) const {
    return {what, rank, peer, block | operation << 16, expected};
  }
};

}  // namespace mscclpp::plan
