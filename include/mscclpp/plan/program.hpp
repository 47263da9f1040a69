// Plans written in C++: a program calls, for each block of each rank, what the block is to do.
//
// A program is an ordinary constexpr function that returns a Plan. Evaluated at compile time, its plan is a constant
// beside the kernel that executes it, and `static_assert(isProven<makePlan>)` refuses a wrong one.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "mscclpp/plan/assembler.hpp"
#include "mscclpp/plan/check.hpp"
#include "mscclpp/plan/overlap.hpp"
#include "mscclpp/plan/syncs.hpp"

namespace mscclpp::plan {

/// Successive chunks of a buffer of a rank.
struct Chunks {
  int rank = 0;
  BufferKind buffer = BufferKind::Input;
  int first = 0;
  int count = 1;
  Form form = Form::Plain;

  /// The same chunks of scratch as packets, whose flags tell that they have arrived.
  constexpr Chunks packets() const { return {rank, buffer, first, count, Form::Packet}; }
};
constexpr Chunks input(int rank, int first, int count = 1) {
  return {rank, BufferKind::Input, first, count};
}
constexpr Chunks output(int rank, int first, int count = 1) {
  return {rank, BufferKind::Output, first, count};
}
constexpr Chunks scratch(int rank, int first, int count = 1) {
  return {rank, BufferKind::Scratch, first, count};
}

/// A plan being written. Threads of a block are synchronised where the order of its operations needs it. A rank or a
/// block that cannot exist throws std::out_of_range, or in a constant expression does not compile, with the line of the
/// program in the message. Everything else that is wrong is check()'s to find.
class Program {
 public:
  constexpr explicit Program(const Header& header) : header_(header), ranks_(header.ranks) {
    for (int rank = 0; rank < header.ranks; ++rank) {
      ranks_[rank].inputChunks = inputChunksOf(header, rank);
      ranks_[rank].outputChunks = outputChunksOf(header, rank);
    }
  }

  /// Custom collectives: the numbers of chunks of a rank, and what an output chunk is to hold: the sum of input chunks.
  constexpr void setChunks(int rank, int inputChunks, int outputChunks) {
    requireRank(rank);
    ranks_[rank].inputChunks = inputChunks;
    ranks_[rank].outputChunks = outputChunks;
  }
  constexpr void expect(const Chunks& output, std::initializer_list<Chunks> contributions) {
    expectations_.push_back({output, contributions});
  }
  /// A device semaphore of a rank, for order between its blocks; returns its number.
  constexpr int semaphore(int rank, int initialValue) {
    requireRank(rank);
    ranks_[rank].semaphores.push_back(initialValue);
    return countOf(ranks_[rank].semaphores) - 1;
  }

  /// The writer of one block: each call appends an operation.
  class BlockWriter {
   public:
    /// Copies chunks to as many other chunks, which may be a peer's, and both may be packets.
    constexpr BlockWriter& copy(const Chunks& source, const Chunks& destination) {
      return reduce({&source, 1}, {&destination, 1});
    }
    /// The same through a port channel: by the peer's proxy or a network. `flush` before the source is overwritten.
    constexpr BlockWriter& copyThroughPort(const Chunks& source, const Chunks& destination) {
      return transfer({&source, 1}, {&destination, 1}, Access::Port);
    }
    /// Writes the reduction of all sources, in their order, to each destination.
    constexpr BlockWriter& reduce(std::span<const Chunks> sources, std::span<const Chunks> destinations) {
      return transfer(sources, destinations, Access::Memory);
    }
    constexpr BlockWriter& reduce(std::initializer_list<Chunks> sources, std::initializer_list<Chunks> destinations) {
      return reduce(std::span(sources.begin(), sources.size()), std::span(destinations.begin(), destinations.size()));
    }
    /// The transfers that follow are done by this block and others: it does part `share` of `shares`.
    constexpr BlockWriter& share(int share, int shares) {
      share_ = share;
      shares_ = shares;
      return *this;
    }

    /// Signals a peer's block of the same number, or waits for its signal. The block's transfers before (after) it are
    /// ordered before (after) it. Each block has its own channels, which other blocks may be given by `channel`.
    constexpr BlockWriter& signal(int peer) { return signal({&peer, 1}); }
    constexpr BlockWriter& wait(int peer) { return wait({&peer, 1}); }
    constexpr BlockWriter& signal(std::span<const int> peers) {
      return synchronise(OperationKind::Signal, Access::Memory, peers);
    }
    constexpr BlockWriter& wait(std::span<const int> peers) {
      return synchronise(OperationKind::Wait, Access::Memory, peers);
    }
    /// The same through port channels: the signal follows what was copied through the port.
    constexpr BlockWriter& signalThroughPort(int peer) {
      return synchronise(OperationKind::Signal, Access::Port, {&peer, 1});
    }
    constexpr BlockWriter& waitThroughPort(int peer) {
      return synchronise(OperationKind::Wait, Access::Port, {&peer, 1});
    }
    constexpr BlockWriter& flush(int peer) { return synchronise(OperationKind::Flush, Access::Port, {&peer, 1}); }
    /// The number of the channels that the block signals on and waits on from here on; its own index by default. The
    /// blocks at both ends name the same.
    constexpr BlockWriter& channel(int number) {
      channel_ = number;
      return *this;
    }

    /// The blocks of the rank that name barrier `index`, `blocks` of them, wait for each other.
    constexpr BlockWriter& barrier(int index, int blocks) {
      return add({.kind = OperationKind::Barrier, .index = index, .blocks = blocks});
    }
    /// Waits until the device semaphore is positive and subtracts one; adds one to it.
    constexpr BlockWriter& acquire(int semaphore) { return count(OperationKind::Acquire, semaphore); }
    constexpr BlockWriter& release(int semaphore) { return count(OperationKind::Release, semaphore); }

    /// The operations up to endLoop() are done for successive pieces of each chunk, of unitBytes.
    constexpr BlockWriter& beginLoop(std::uint64_t unitBytes) {
      return add({.kind = OperationKind::LoopBegin, .unitBytes = unitBytes});
    }
    constexpr BlockWriter& endLoop() { return add({.kind = OperationKind::LoopEnd}); }

   private:
    friend class Program;
    constexpr BlockWriter(Program& program, int rank, int block)
        : program_(program), rank_(rank), block_(block), channel_(block) {}

    constexpr BlockWriter& add(const Operation& operation) {
      program_.operationsOf(rank_, block_).push_back(operation);
      return *this;
    }
    constexpr BlockWriter& count(OperationKind kind, int semaphore) {
      return add({.kind = kind, .references = program_.refer({&semaphore, 1})});
    }
    constexpr BlockWriter& synchronise(OperationKind kind, Access access, std::span<const int> peers) {
      std::vector<int> channels;
      for (const int peer : peers) channels.push_back(program_.channelTo(rank_, peer, access, channel_));
      return add({.kind = kind, .references = program_.refer(channels)});
    }
    constexpr BlockWriter& transfer(std::span<const Chunks> sources, std::span<const Chunks> destinations,
                                    Access remote) {
      const int count = sources.empty() ? 0 : sources[0].count;
      const auto isOther = [count](const Chunks& chunks) { return chunks.count != count; };
      const bool isUneven = std::any_of(sources.begin(), sources.end(), isOther) ||
                            std::any_of(destinations.begin(), destinations.end(), isOther);
      return add({.kind = OperationKind::Transfer,
                  .chunks = isUneven ? 0 : count,  // of none: FaultKind::WrongTransfer
                  .sources = operands(sources, Access::Memory),
                  .destinations = operands(destinations, remote),
                  .share = static_cast<std::int16_t>(share_),
                  .shares = static_cast<std::int16_t>(shares_)});
    }
    constexpr Range operands(std::span<const Chunks> list, Access remote) {
      const Range range{countOf(program_.operands_), countOf(list)};
      for (const Chunks& chunks : list) {
        const Access access = chunks.rank == rank_ ? Access::Local : remote;
        const int channel = access == Access::Port ? program_.channelTo(rank_, chunks.rank, access, channel_) : -1;
        program_.operands_.push_back({.buffer = chunks.buffer,
                                      .form = chunks.form,
                                      .access = access,
                                      .rank = static_cast<std::int16_t>(chunks.rank),
                                      .channel = static_cast<std::int16_t>(channel),
                                      .first = chunks.first});
        if (chunks.buffer != BufferKind::Scratch || chunks.rank < 0 || chunks.rank >= program_.header_.ranks) continue;
        int& scratchChunks = program_.ranks_[chunks.rank].scratchChunks;
        scratchChunks = std::max(scratchChunks, chunks.first + chunks.count);
      }
      return range;
    }

    Program& program_;
    int rank_;
    int block_;
    int channel_;
    int share_ = 0;
    int shares_ = 1;
  };

  constexpr BlockWriter block(int rank, int block) {
    requireRank(rank);
    if (block < 0 || block >= maxRankBlocks) refuse("block", block, maxRankBlocks);
    return {*this, rank, block};
  }

  /// The plan. Scratch is as large as its chunks that are named.
  constexpr Plan finish() const {
    Assembler assembler(header_);
    const auto inputChunks = [this](int rank) { return ranks_[rank].inputChunks; };
    const auto overlaps = [&](const Operand& a, int chunksOfA, const Operand& b, int chunksOfB) {
      return overlap(header_, inputChunks, a, chunksOfA, b, chunksOfB);
    };
    for (int rank = 0; rank < header_.ranks; ++rank) {
      const Rank& of = ranks_[rank];
      assembler.setChunks(rank, of.inputChunks, of.outputChunks);
      assembler.setScratchChunks(rank, of.scratchChunks);
      for (const Connection& channel : of.channels) assembler.addChannel(rank, channel.access, channel.peer);
      for (const int initialValue : of.semaphores) assembler.addSemaphore(rank, initialValue);
      SyncInsertion syncs(operands_, SyncScope::Publish, overlaps);
      for (int block = 0; block < countOf(of.blocks); ++block) {
        const std::vector<Operation>& operations = of.blocks[block];
        for (const std::int32_t i : syncs.run(operations)) {
          if (i == syncs.sync)
            assembler.add(rank, block, {.kind = OperationKind::Sync});
          else
            add(assembler, rank, block, operations[i]);
        }
      }
    }
    for (const auto& [chunks, contributions] : expectations_) {
      std::vector<std::pair<int, int>> pairs;
      for (const Chunks& contribution : contributions) pairs.emplace_back(contribution.rank, contribution.first);
      assembler.expect(chunks.rank, chunks.first, pairs);
    }
    Plan plan = assembler.finish();
    setPositions(plan);  // a fault, if there is one, is check()'s to find
    return plan;
  }

 private:
  struct Connection {
    Access access;
    int peer;
    int number;
  };
  struct Rank {
    int inputChunks = 0;
    int outputChunks = 0;
    int scratchChunks = 0;
    std::vector<Connection> channels;
    std::vector<int> semaphores;
    std::vector<std::vector<Operation>> blocks;
  };
  struct Expected {
    Chunks output;
    std::vector<Chunks> contributions;
  };

  constexpr void requireRank(int rank) const {
    if (rank < 0 || rank >= header_.ranks) refuse("rank", rank, header_.ranks);
  }
  [[noreturn]] static void refuse(const char* what, int number, int count) {
    throw std::out_of_range(std::string("a plan's ") + what + ' ' + std::to_string(number) +
                            ": they are numbered from 0 to " + std::to_string(count - 1));
  }

  constexpr std::vector<Operation>& operationsOf(int rank, int block) {
    auto& blocks = ranks_[rank].blocks;
    if (countOf(blocks) <= block) blocks.resize(block + 1);
    return blocks[block];
  }
  /// The channel to a peer of this number; made, with its other end, when it is first named.
  constexpr int channelTo(int rank, int peer, Access access, int number) {
    auto& channels = ranks_[rank].channels;
    for (int i = 0; i < countOf(channels); ++i)
      if (channels[i].access == access && channels[i].peer == peer && channels[i].number == number) return i;
    if (peer >= 0 && peer < header_.ranks && peer != rank) ranks_[peer].channels.push_back({access, rank, number});
    channels.push_back({access, peer, number});
    return countOf(channels) - 1;
  }
  constexpr Range refer(std::span<const int> references) {
    const Range range{countOf(references_), countOf(references)};
    references_.insert(references_.end(), references.begin(), references.end());
    return range;
  }
  constexpr void add(Assembler& assembler, int rank, int block, const Operation& operation) const {
    const std::span operands(operands_);
    const auto of = [&](Range range) { return operands.subspan(range.first, range.count); };
    if (operation.kind == OperationKind::Transfer)
      assembler.transfer(rank, block, of(operation.sources), of(operation.destinations), operation.chunks, operation);
    else if (operation.references.count > 0)
      assembler.synchronise(rank, block, operation.kind,
                            std::span(references_).subspan(operation.references.first, operation.references.count),
                            operation);
    else
      assembler.add(rank, block, operation);
  }

  Header header_;
  std::vector<Rank> ranks_;
  std::vector<Operand> operands_;
  std::vector<std::int32_t> references_;
  std::vector<Expected> expectations_;
};

/// Compiles only for a plan without fault, and names the fault otherwise.
template <Fault fault>
struct ProvenPlan {
  static_assert(fault.kind == FaultKind::None,
                "this plan has a fault: see the members of `fault` (plan/fault.hpp) in this message; at run time "
                "describe(plan, check(plan)) of plan/fault_message.hpp is a sentence");
  static constexpr bool value = true;
};
template <auto make>
consteval Fault faultOf() {
  const Plan plan = make();
  return check(plan);
}
/// Whether the plan that `make` returns is right; if not, the program does not compile, and the message has the Fault:
/// `static_assert(isProven<makeMyPlan>);`
template <auto make>
inline constexpr bool isProven = ProvenPlan<faultOf<make>()>::value;

}  // namespace mscclpp::plan
