// MSCCL's instructions: two-sided steps of thread blocks, between chunk programs (or XML) and plans.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "draft.hpp"

namespace mscclpp::plan {

/// In the order of instructionNames.
enum class InstructionKind : unsigned char {
  Send,
  Receive,
  ReceiveCopySend,
  ReceiveReduceSend,
  ReceiveReduceCopy,
  ReceiveReduceCopySend,
  Copy,
  Reduce,
  Nop
};
inline constexpr const char* instructionNames[] = {"s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop"};

constexpr bool receives(InstructionKind kind) {
  return kind >= InstructionKind::Receive && kind <= InstructionKind::ReceiveReduceCopySend;
}
constexpr bool sends(InstructionKind kind) {
  return kind == InstructionKind::Send || kind == InstructionKind::ReceiveCopySend ||
         kind == InstructionKind::ReceiveReduceSend || kind == InstructionKind::ReceiveReduceCopySend;
}
constexpr bool reduces(InstructionKind kind) {
  return kind == InstructionKind::ReceiveReduceSend || kind == InstructionKind::ReceiveReduceCopy ||
         kind == InstructionKind::ReceiveReduceCopySend;
}
/// Whether what is received is stored in `destination`.
constexpr bool storesReceived(InstructionKind kind) {
  return receives(kind) && kind != InstructionKind::ReceiveReduceSend;
}

struct ChunkPlace {
  BufferKind buffer = BufferKind::Input;
  int index = 0;

  friend bool operator==(const ChunkPlace&, const ChunkPlace&) = default;
};

struct Instruction {
  InstructionKind kind = InstructionKind::Nop;
  ChunkPlace source;       ///< Send, Copy: what is sent or copied; reductions: what is added
  ChunkPlace destination;  ///< where the result goes; Reduce: also the other summand
  int count = 1;
  std::vector<std::pair<int, int>> dependences = {};  ///< (block, instruction) of the rank that come before
  int origin = -1;
};

struct InstructionBlock {
  int send = -1;     ///< the peer that it sends to
  int receive = -1;  ///< the peer that it receives from
  int channel = 0;
  std::vector<Instruction> steps = {};
};

struct InstructionRank {
  int inputChunks = 0;
  int outputChunks = 0;
  int scratchChunks = 0;
  std::vector<InstructionBlock> blocks = {};
};

/// For all ranks. The n-th instruction that sends on (a, b, channel) and the n-th that receives on it are one message.
struct InstructionProgram {
  Header header;
  std::string name;
  std::vector<std::string> origins = {};
  bool packets = false;  ///< messages are packets (MSCCL's protocols LL and LL128), or data and signals (Simple)
  int ranksPerNode = 0;  ///< messages between nodes go through port channels; 0: there is one node
  std::vector<InstructionRank> ranks = {};
  std::vector<DraftExpectation> expectations = {};
};

/// The same, done `instances` times for a share of the data, by blocks and channels of its own. Throws
/// Error(InvalidUsage) if `batched` and an instruction has chunks of two parts.
InstructionProgram replicate(const InstructionProgram& program, int instances, bool batched);

/// One-sided operations that do the same. A message goes directly to where it is stored, if the order of instructions
/// shows that the place is free; else through scratch of the receiver. Throws Error(InvalidUsage) for messages without
/// a receiver or with another count.
Draft lowerInstructions(const InstructionProgram& program);

}  // namespace mscclpp::plan
