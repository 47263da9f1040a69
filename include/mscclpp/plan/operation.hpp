// What the blocks of a plan do: operations, and the chunks and channels that they name.
//
// A plan is an algorithm as data: for each rank, blocks of operations, which the blocks of a grid carry out. It names
// data by chunks, so that it serves messages of any size. These are the types of lowered plans, which are checked
// (plan/check.hpp) and executed. All data operations are one, Transfer: read one or more operands, reduce them, write
// one or more operands. MSCCL++'s put, get, copy, reduce, reduce_send, unpack_packets and so on are instances of it.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::plan {

/// A part of an array: `count` entries from `first` on.
struct Range {
  std::int32_t first = 0;
  std::int32_t count = 0;

  friend constexpr bool operator==(const Range&, const Range&) = default;
};

/// The buffers that each rank has. Input and Output are the caller's; they are one if the call is in place. Scratch is
/// the executor's.
enum class BufferKind : std::uint8_t { Input, Output, Scratch };

/// How data lies in an operand.
enum class Form : std::uint8_t {
  Plain,  ///< the elements; that they have arrived is shown by a signal
  Packet  ///< packets, whose flags show that the data has arrived; in scratch only. A read waits for the flags.
};

/// How a rank reaches an operand.
enum class Access : std::uint8_t {
  Local,   ///< its own memory
  Memory,  ///< a peer's memory, mapped: loads and stores
  Port,    ///< a peer's memory through a port channel: a write by the proxy of a single local operand of the same form
  Switch   ///< the memory of all ranks of a switch channel, at once: reads reduce in the switch, writes multicast
};

/// What an operation reads or writes: as many chunks as the operation says, from chunk `first` on.
struct Operand {
  BufferKind buffer = BufferKind::Input;
  Form form = Form::Plain;
  Access access = Access::Local;
  std::int16_t rank = 0;      ///< whose buffer; Switch: the rank itself
  std::int16_t channel = -1;  ///< Port, Switch: a channel of the rank, an index into the channels of its RankPlan
  std::int32_t first = 0;     ///< the first chunk

  friend constexpr bool operator==(const Operand&, const Operand&) = default;
};

enum class OperationKind : std::uint8_t {
  /// Writes the reduction of all sources, in their order, to each of the destinations. One source: a copy. An operand
  /// may be source and destination.
  Transfer,
  Signal,     ///< adds one to the semaphore of each of the channels at the peer. Released: all earlier transfers of the
              ///< block are visible before it, unless relaxed
  Wait,       ///< waits for one more signal on each of the channels; acquires, unless relaxed
  Flush,      ///< waits until the writes through each of the port channels are complete and their sources may be reused
  Sync,       ///< the threads of the block wait for each other
  Barrier,    ///< the blocks that name barrier `index` (`blocks` of them) wait for each other
  Acquire,    ///< waits until each of the device semaphores `references` is positive and subtracts one
  Release,    ///< adds one to each of the device semaphores `references`
  LoopBegin,  ///< the operations up to LoopEnd run for successive pieces of each chunk: `unitBytes` a piece, the same
              ///< in all loops of a plan
  LoopEnd
};

/// One step of a block.
struct Operation {
  OperationKind kind = OperationKind::Sync;
  bool relaxed = false;    ///< Signal, Wait: without order, for flags beside packets
  bool completes = false;  ///< Transfer: its result is the reduction of all ranks' data, which an average divides; set
                           ///< by the executor

  std::int32_t chunks = 0;  ///< Transfer: how many chunks each operand has
  /// Transfer: the position in the message, within a part (see Plan::chunksPerPart), of the first chunk's data: chunks
  /// at the end of a part may be shorter than others, and scratch slots hold data of any position.
  std::int32_t position = 0;
  Range sources = {};       ///< Transfer: operands of the plan
  Range destinations = {};  ///< Transfer: operands of the plan
  /// Signal, Wait, Flush: references to channels of the rank; Acquire, Release: references to its semaphores.
  Range references = {};

  std::int32_t index = 0;   ///< Barrier: which
  std::int32_t blocks = 0;  ///< Barrier: how many blocks take part

  /// Transfer: the block does part `share` of `shares` of the bytes of each operand; the others are done by other
  /// blocks (a group of thread blocks).
  std::int16_t share = 0;
  std::int16_t shares = 1;

  std::uint64_t unitBytes = 0;  ///< LoopBegin: bytes of a chunk that one iteration handles
  std::int32_t origin = -1;     ///< the line of the program that made it: an index into NamedPlan::origins; -1: unknown

  friend constexpr bool operator==(const Operation&, const Operation&) = default;
};

/// A channel of a rank. The n-th channel of a kind from rank a to rank b and the n-th of the kind from b to a are the
/// two ends of one connection.
struct Channel {
  Access access = Access::Memory;         ///< Memory, Port or Switch
  std::int16_t peer = 0;                  ///< Memory, Port: the rank at the other end
  BufferKind buffer = BufferKind::Input;  ///< Switch: which buffer of all members
  Range members = {};                     ///< Switch: references, the ranks

  friend constexpr bool operator==(const Channel&, const Channel&) = default;
};

/// The operations of a block, in order.
struct Block {
  Range operations = {};
};

/// What one rank has and does.
struct RankPlan {
  std::int32_t inputChunks = 0;
  std::int32_t outputChunks = 0;
  std::int32_t scratchChunks = 0;
  Range blocks = {};
  Range channels = {};
  Range semaphores = {};  ///< initial values of the device semaphores, references
};

/// What a plan computes. Buffers have the layout of NCCL's collectives: where chunks belong to ranks, the buffer is as
/// many parts as there are ranks, in rank order.
enum class CollectiveKind : std::uint8_t {
  AllReduce,      ///< input and output: one part
  AllGather,      ///< input: one part; output: a part for each rank
  ReduceScatter,  ///< input: a part for each rank; output: one part
  AllToAll,       ///< input and output: a part for each rank
  Broadcast,      ///< input and output: one part; input of the root
  Reduce,         ///< input and output: one part; output of the root
  Gather,         ///< input: one part; output of the root: a part for each rank
  Scatter,        ///< input of the root: a part for each rank; output: one part
  SendReceive,    ///< input and output: one part; rank r sends to the next
  /// As many chunks as the plan says, all of one size (chunksPerPart is 1: each chunk is a part); what output chunks
  /// are to hold is given by Plan::expectations.
  Custom
};

/// Custom collectives: output chunk `chunk` of rank `rank` is to hold the sum of the input chunks `contributions`.
struct Expectation {
  std::int16_t rank = 0;
  std::int32_t chunk = 0;
  Range contributions = {};  ///< references, in pairs: rank, input chunk
};

}  // namespace mscclpp::plan
