// The language of MSCCL++ (mscclpp.language) for plans: programs of ranks, channels and thread blocks.
//
// A program is written for all ranks; each call appends an operation to a thread block of a rank. Transfers are
// one-sided, and the program signals and waits. compile() checks, fuses, orders accesses within each block, and makes
// as many instances as the specification says. Names are those of the Python package, in this library's spelling.
// Everything here is host code; errors are Error(InvalidUsage) whose text starts with the line of the program.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/kernels/plan/collective.hpp"
#include "mscclpp/kernels/plan/origin.hpp"
#include "mscclpp/plan/plan.hpp"

namespace mscclpp::language {

using plan::Collective;
using plan::Origin;
using BufferType = plan::BufferKind;

/// Whether the threads of the block wait for each other before and after a synchronisation.
enum class SyncType { None, Before, After, Both };

enum class ReplicationPolicy {
  Interleaved,  ///< `instances` copies of the program share the data, chunk by chunk
  None          ///< the program is made once, whatever `instances` is
};

/// What a program is for.
struct AlgoSpec {
  std::string name;
  Collective collective;
  int nranksPerNode = 0;
  int worldSize = 0;
  bool inPlace = false;
  int instances = 1;
  std::string protocol = "Simple";  ///< or "LL"
  bool instrFusion = true;
  bool autoSync = true;
  ReplicationPolicy replicationPolicy = ReplicationPolicy::Interleaved;
  bool reuseResources = false;
  int numThreadsPerBlock = 1024;
  bool useDoubleScratchBuffer = false;
  int bufferAlignment = 16;
  std::uint64_t minMessageSize = 0;
  std::uint64_t maxMessageSize = ~std::uint64_t{0};
  std::map<std::string, int> tags = {};
};

/// Some chunks of a buffer of a rank.
struct Chunk {
  int rank = 0;
  BufferType buffer = BufferType::Input;
  int index = 0;
  int size = 1;
};

/// Thread blocks that share a transfer: each does an equal part of the bytes.
class ThreadBlockGroup {
 public:
  explicit ThreadBlockGroup(std::vector<int> blocks) : blocks_(std::move(blocks)) {}
  const std::vector<int>& blocks() const { return blocks_; }
  int size() const { return static_cast<int>(blocks_.size()); }

 private:
  std::vector<int> blocks_;
};

/// The argument `tb` or `tb_group` of operations.
class Blocks {
 public:
  Blocks(int block) : blocks_{block} {}                               // NOLINT: operations take a number as it is
  Blocks(const ThreadBlockGroup& group) : blocks_(group.blocks()) {}  // NOLINT
  const std::vector<int>& list() const { return blocks_; }

 private:
  std::vector<int> blocks_;
};

class ProgramState;

/// A program for all ranks.
class CollectiveProgram {
 public:
  explicit CollectiveProgram(const AlgoSpec& spec, Origin origin = Origin::current());
  ~CollectiveProgram();
  CollectiveProgram(CollectiveProgram&&) noexcept;
  CollectiveProgram& operator=(CollectiveProgram&&) noexcept;

  const AlgoSpec& spec() const;
  /// The plan of what was recorded so far. The program stays as it is: each call gives the same plan. It is not proven
  /// to be right: plan::verified() does that.
  plan::NamedPlan compile() const;
  /// The plan in the reference's JSON schema.
  std::string toJson() const;

  ProgramState& state() { return *state_; }

 private:
  std::unique_ptr<ProgramState> state_;
};

/// A buffer of a rank. Constructed: scratch of `size` chunks.
class Buffer {
 public:
  Buffer(CollectiveProgram& program, int rank, int size, Origin origin = Origin::current());

  int rank() const { return rank_; }
  int size() const { return size_; }
  BufferType type() const { return type_; }
  /// Chunks [begin, end) of the buffer.
  Chunk slice(int begin, int end, Origin origin = Origin::current()) const;
  Chunk operator[](int index) const { return slice(index, index + 1); }

 private:
  friend class Rank;
  Buffer(int rank, BufferType type, int offset, int size) : rank_(rank), type_(type), offset_(offset), size_(size) {}

  int rank_;
  BufferType type_;
  int offset_;
  int size_;
};

/// What a rank does with its own memory.
class Rank {
 public:
  Rank(CollectiveProgram& program, int rank, Origin origin = Origin::current());

  Buffer getInputBuffer() const;
  Buffer getOutputBuffer() const;
  void copy(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin = Origin::current());
  /// Into packets, in scratch.
  void copyPackets(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin = Origin::current());
  /// Out of packets, which it waits for.
  void unpackPackets(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin = Origin::current());
  /// dst (src, if there is none) = src + others. `packet`: the others are packets. The operator is that of the call.
  void reduce(const Chunk& src, const std::vector<Chunk>& others, const Blocks& blocks,
              const std::optional<Chunk>& dst = std::nullopt, bool packet = false, Origin origin = Origin::current());
  /// These blocks of the rank wait for each other. The calls with the same blocks are one barrier in turn.
  void barrier(const std::vector<int>& blocks, Origin origin = Origin::current());

 private:
  CollectiveProgram* program_;
  int rank_;
};

/// A counter between blocks of a rank.
class Semaphore {
 public:
  Semaphore(CollectiveProgram& program, int rank, int initialValue, Origin origin = Origin::current());
  void acquire(int block, SyncType dataSync = SyncType::Both, Origin origin = Origin::current());
  void release(int block, SyncType dataSync = SyncType::Both, Origin origin = Origin::current());

 private:
  CollectiveProgram* program_;
  int rank_;
  int index_;
};

/// What channels of either kind have. The n-th channel from a to b and the n-th from b to a are one connection.
class Channel {
 public:
  int source() const { return source_; }
  int destination() const { return destination_; }
  /// `relaxed` allows a signal or wait that orders nothing. The plan has such ones only if it is right with them:
  /// MSCCL++'s programs ask for them where the data of peers is read afterwards, too.
  void signal(int block, SyncType dataSync = SyncType::Both, bool relaxed = false, Origin origin = Origin::current());
  void wait(int block, SyncType dataSync = SyncType::Both, bool relaxed = false, Origin origin = Origin::current());
  /// `src` of the channel's source rank to `dst` of its destination rank.
  void put(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin = Origin::current());
  /// The same as packets. Port channels move packets as they lie: src is scratch that holds packets.
  void putPackets(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin = Origin::current());
  /// From packets, which it waits for, to packets.
  void readPutPackets(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin = Origin::current());

 protected:
  Channel(CollectiveProgram& program, plan::Access access, int destination, int source, const Origin& origin);

  CollectiveProgram* program_;
  plan::Access access_;
  int destination_;
  int source_;
  int index_;
};

class MemoryChannel : public Channel {
 public:
  MemoryChannel(CollectiveProgram& program, int destination, int source, Origin origin = Origin::current())
      : Channel(program, plan::Access::Memory, destination, source, origin) {}

  /// `src` of the destination rank to `dst` of the source rank.
  void get(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin = Origin::current());
  /// localDst (localSrc, if there is none) = localSrc + remoteSrcs, which are the destination rank's.
  void reduce(const Chunk& localSrc, const std::vector<Chunk>& remoteSrcs, const Blocks& blocks,
              const std::optional<Chunk>& localDst = std::nullopt, Origin origin = Origin::current());
};

class PortChannel : public Channel {
 public:
  PortChannel(CollectiveProgram& program, int destination, int source, Origin origin = Origin::current())
      : Channel(program, plan::Access::Port, destination, source, origin) {}

  void flush(int block, SyncType dataSync = SyncType::Both, Origin origin = Origin::current());
  void putWithSignal(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin = Origin::current());
  void putWithSignalAndFlush(const Chunk& dst, const Chunk& src, const Blocks& blocks,
                             Origin origin = Origin::current());
};

/// The same buffer of several ranks, through a switch that reduces and multicasts.
class SwitchChannel {
 public:
  SwitchChannel(CollectiveProgram& program, std::vector<int> ranks, BufferType buffer,
                Origin origin = Origin::current());

  /// What one of the ranks does with it.
  class AtRank {
   public:
    /// dst = the sum of chunks [offset, offset + size) of all ranks.
    void reduce(int offset, int size, const Chunk& dst, const Blocks& blocks, Origin origin = Origin::current());
    /// Chunks [offset, offset + size) of all ranks = src.
    void broadcast(const Chunk& src, int offset, int size, const Blocks& blocks, Origin origin = Origin::current());
    void broadcastPackets(const Chunk& src, int offset, int size, const Blocks& blocks,
                          Origin origin = Origin::current());

   private:
    friend class SwitchChannel;
    CollectiveProgram* program_ = nullptr;
    int rank_ = 0;
    int index_ = 0;
    BufferType buffer_ = BufferType::Input;
  };
  AtRank atRank(int rank, Origin origin = Origin::current()) const;

 private:
  CollectiveProgram* program_;
  std::vector<int> ranks_;
  BufferType buffer_;
  std::vector<int> indices_;
};

/// While it lives, operations run in a loop over pieces of their chunks: `unit` bytes of `numChunks` chunks a turn.
class LoopIterationContext {
 public:
  LoopIterationContext(CollectiveProgram& program, std::uint64_t unit, int numChunks,
                       Origin origin = Origin::current());
  ~LoopIterationContext() { end(); }
  LoopIterationContext(const LoopIterationContext&) = delete;
  LoopIterationContext& operator=(const LoopIterationContext&) = delete;
  /// Ends the loop before its lifetime does.
  void end() noexcept;

 private:
  CollectiveProgram* program_;
};

}  // namespace mscclpp::language
