// Plans that the tests of their execution use, made by the assembler: each has features that the others lack.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "mscclpp/plan/assembler.hpp"

namespace mscclpp::plan {

/// Operands and operations of one rank, for readable plans.
class SampleRank {
 public:
  constexpr SampleRank(Assembler& assembler, int rank) : assembler_(assembler), rank_(rank) {}

  constexpr Operand at(int owner, BufferKind buffer, int chunk, Form form = Form::Plain) const {
    return Operand{.buffer = buffer,
                   .form = form,
                   .access = owner == rank_ ? Access::Local : Access::Memory,
                   .rank = static_cast<std::int16_t>(owner),
                   .first = chunk};
  }
  constexpr Operand own(BufferKind buffer, int chunk, Form form = Form::Plain) const {
    return at(rank_, buffer, chunk, form);
  }
  constexpr void transfer(int block, const std::vector<Operand>& from, const std::vector<Operand>& to, int position,
                          Operation operation = {}) {
    operation.position = position;
    assembler_.transfer(rank_, block, from, to, operation.chunks == 0 ? 1 : operation.chunks, operation);
  }
  constexpr void sync(int block) { assembler_.add(rank_, block, {.kind = OperationKind::Sync}); }
  constexpr void barrier(int block, int index, int blocks) {
    assembler_.add(rank_, block, {.kind = OperationKind::Barrier, .index = index, .blocks = blocks});
  }
  constexpr void call(int block, OperationKind kind, const std::vector<int>& references, bool relaxed = false) {
    assembler_.synchronise(rank_, block, kind, references, {.relaxed = relaxed});
  }
  /// Publishes what the block has transferred, and waits for the others.
  constexpr void exchangeSignals(int block, const std::vector<int>& to, const std::vector<int>& from) {
    sync(block);
    call(block, OperationKind::Signal, to);
    call(block, OperationKind::Wait, from);
    sync(block);
  }

 private:
  Assembler& assembler_;
  int rank_;
};

/// All-reduce: every rank reduces its chunks, read from its scratch, and writes the results to all outputs. `blocks`
/// blocks do a share each.
constexpr Plan twoShotPlan(int ranks, int blocks = 1, std::uint64_t unit = 0, Access access = Access::Memory) {
  Assembler assembler(
      {.collective = CollectiveKind::AllReduce, .ranks = ranks, .chunksPerPart = ranks, .threadsPerBlock = 256});
  for (int rank = 0; rank < ranks; ++rank) {
    SampleRank self(assembler, rank);
    assembler.setScratchChunks(rank, ranks);
    for (int block = 0; block < blocks; ++block) {
      const Operation share{.share = static_cast<std::int16_t>(block), .shares = static_cast<std::int16_t>(blocks)};
      std::vector<int> channels;
      std::vector<Operand> contributions, results;
      for (int peer = 0; peer < ranks; ++peer) {
        results.push_back(self.at(peer, BufferKind::Output, rank));
        contributions.push_back(self.own(peer == rank ? BufferKind::Input : BufferKind::Scratch,  //
                                         peer == rank ? rank : peer));
        if (peer != rank) channels.push_back(assembler.addChannel(rank, access, peer));
      }
      if (unit != 0) assembler.add(rank, block, {.kind = OperationKind::LoopBegin, .unitBytes = unit});
      int channel = 0;
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        Operand slot = self.at(peer, BufferKind::Scratch, rank);
        slot.access = access;
        if (access == Access::Port) slot.channel = static_cast<std::int16_t>(channels[channel]);
        ++channel;
        self.transfer(block, {self.own(BufferKind::Input, peer)}, {slot}, peer, share);
      }
      self.exchangeSignals(block, channels, channels);
      if (access == Access::Port) {
        self.call(block, OperationKind::Flush, channels);
        self.transfer(block, contributions, {self.own(BufferKind::Output, rank)}, rank, share);
        self.sync(block);
        for (int peer = 0, c = 0; peer < ranks; ++peer) {
          if (peer == rank) continue;
          Operand result = self.at(peer, BufferKind::Output, rank);
          result.access = access;
          result.channel = static_cast<std::int16_t>(channels[c++]);
          self.transfer(block, {self.own(BufferKind::Output, rank)}, {result}, rank, share);
        }
        self.exchangeSignals(block, channels, channels);
        self.call(block, OperationKind::Flush, channels);
      } else {
        self.transfer(block, contributions, results, rank, share);
        self.exchangeSignals(block, channels, channels);
      }
      if (unit != 0) assembler.add(rank, block, {.kind = OperationKind::LoopEnd});
    }
  }
  return assembler.finish();
}

/// The same by packets; `blocks` blocks do a share each.
constexpr Plan twoShotPacketPlan(int ranks, int blocks = 1) {
  Assembler assembler({.collective = CollectiveKind::AllReduce,
                       .ranks = ranks,
                       .chunksPerPart = ranks,
                       .threadsPerBlock = 256,
                       .doubleScratch = true});
  for (int rank = 0; rank < ranks; ++rank) {
    SampleRank self(assembler, rank);
    assembler.setScratchChunks(rank, 2 * ranks);
    for (int block = 0; block < blocks; ++block) {
      const Operation share{.share = static_cast<std::int16_t>(block), .shares = static_cast<std::int16_t>(blocks)};
      std::vector<Operand> contributions, results{self.own(BufferKind::Output, rank)};
      for (int peer = 0; peer < ranks; ++peer) {
        contributions.push_back(peer == rank ? self.own(BufferKind::Input, rank)
                                             : self.own(BufferKind::Scratch, peer, Form::Packet));
        if (peer == rank) continue;
        results.push_back(self.at(peer, BufferKind::Scratch, ranks + rank, Form::Packet));
        self.transfer(block, {self.own(BufferKind::Input, peer)},
                      {self.at(peer, BufferKind::Scratch, rank, Form::Packet)}, peer, share);
      }
      self.sync(block);
      self.transfer(block, contributions, results, rank, share);
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        self.transfer(block, {self.own(BufferKind::Scratch, ranks + peer, Form::Packet)},
                      {self.own(BufferKind::Output, peer)}, peer, share);
      }
    }
  }
  return assembler.finish();
}

/// All-reduce: every rank sends its whole input to all, in packets, and reduces all of it. The ranks' results are the
/// credit for the scratch of the call after the next.
constexpr Plan oneShotPacketPlan(int ranks, int blocks = 1) {
  Assembler assembler({.collective = CollectiveKind::AllReduce,
                       .ranks = ranks,
                       .chunksPerPart = 1,
                       .threadsPerBlock = 256,
                       .doubleScratch = true});
  for (int rank = 0; rank < ranks; ++rank) {
    SampleRank self(assembler, rank);
    assembler.setScratchChunks(rank, ranks);
    for (int block = 0; block < blocks; ++block) {
      const Operation share{.share = static_cast<std::int16_t>(block), .shares = static_cast<std::int16_t>(blocks)};
      std::vector<Operand> contributions, slots;
      for (int peer = 0; peer < ranks; ++peer) {
        contributions.push_back(peer == rank ? self.own(BufferKind::Input, 0)
                                             : self.own(BufferKind::Scratch, peer, Form::Packet));
        if (peer != rank) slots.push_back(self.at(peer, BufferKind::Scratch, rank, Form::Packet));
      }
      self.transfer(block, {self.own(BufferKind::Input, 0)}, slots, 0, share);
      self.sync(block);
      self.transfer(block, contributions, {self.own(BufferKind::Output, 0)}, 0, share);
    }
  }
  return assembler.finish();
}

/// All-reduce on a ring: reduced from rank to rank, then gathered.
constexpr Plan ringPlan(int ranks, bool inPlace = false) {
  Assembler assembler({.collective = CollectiveKind::AllReduce,
                       .ranks = ranks,
                       .chunksPerPart = ranks,
                       .inPlace = inPlace,
                       .threadsPerBlock = 256});
  for (int rank = 0; rank < ranks; ++rank) {
    SampleRank self(assembler, rank);
    assembler.setScratchChunks(rank, ranks - 1);
    const int next = (rank + 1) % ranks;
    const int previous = (rank + ranks - 1) % ranks;
    const std::vector<int> to{assembler.addChannel(rank, Access::Memory, next)};
    const std::vector<int> from{next == previous ? to[0] : assembler.addChannel(rank, Access::Memory, previous)};
    const auto chunkOf = [&](int step) { return (rank - step + 2 * ranks) % ranks; };
    self.transfer(0, {self.own(BufferKind::Input, rank)}, {self.at(next, BufferKind::Scratch, 0)}, rank);
    for (int step = 1; step < ranks; ++step) {
      self.exchangeSignals(0, to, from);
      const int chunk = chunkOf(step);
      const bool isLast = step == ranks - 1;
      std::vector<Operand> results{isLast ? self.own(BufferKind::Output, chunk)
                                          : self.at(next, BufferKind::Scratch, step)};
      if (isLast) results.push_back(self.at(next, BufferKind::Output, chunk));
      self.transfer(0, {self.own(BufferKind::Scratch, step - 1), self.own(BufferKind::Input, chunk)}, results, chunk);
    }
    for (int step = 1; step < ranks; ++step) {
      self.exchangeSignals(0, to, from);
      const int chunk = chunkOf(ranks - 1 + step);
      if (step < ranks - 1)
        self.transfer(0, {self.own(BufferKind::Output, chunk)}, {self.at(next, BufferKind::Output, chunk)}, chunk);
    }
  }
  return assembler.finish();
}

/// All-gather by reading the peers' inputs. Block 0 exchanges the signals, and the others wait for it: by a barrier, or
/// by device semaphores.
constexpr Plan gatherByReadingPlan(int ranks, bool usesSemaphores) {
  constexpr int blocks = 3;
  Assembler assembler(
      {.collective = CollectiveKind::AllGather, .ranks = ranks, .chunksPerPart = 2, .threadsPerBlock = 256});
  for (int rank = 0; rank < ranks; ++rank) {
    SampleRank self(assembler, rank);
    std::vector<int> channels, begin, end;
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != rank) channels.push_back(assembler.addChannel(rank, Access::Memory, peer));
    for (int block = 1; block < blocks; ++block) {
      begin.push_back(assembler.addSemaphore(rank, 0));
      end.push_back(assembler.addSemaphore(rank, 0));
    }
    for (int block = 0; block < blocks; ++block) {
      const auto together = [&](bool isBegin) {
        if (!usesSemaphores) return self.barrier(block, isBegin ? 0 : 1, blocks);
        self.sync(block);
        const std::vector<int>& all = isBegin ? begin : end;
        if (block == 0) {
          self.call(block, isBegin ? OperationKind::Release : OperationKind::Acquire, all);
        } else {
          self.call(block, isBegin ? OperationKind::Acquire : OperationKind::Release, {all[block - 1]});
        }
        self.sync(block);
      };
      if (block == 0) {
        self.call(block, OperationKind::Signal, channels);
        self.call(block, OperationKind::Wait, channels);
      }
      together(true);
      for (int peer = block; peer < ranks; peer += blocks) {
        self.transfer(block, {self.at(peer, BufferKind::Input, 0)}, {self.own(BufferKind::Output, 2 * peer)}, 0,
                      {.chunks = 2});
      }
      together(false);
      if (block == 0) {
        for (const bool relaxed : {false, true}) {
          self.call(block, OperationKind::Signal, channels, relaxed);
          self.call(block, OperationKind::Wait, channels, relaxed);
        }
      }
    }
  }
  return assembler.finish();
}

/// All-gather, of so many operations at least in each block, nearly all of which copy within the scratch or, between
/// `copies` copies, sync only.
constexpr Plan longPlan(int ranks, int operations, int copies) {
  Assembler assembler({.collective = CollectiveKind::AllGather, .ranks = ranks, .threadsPerBlock = 256});
  for (int rank = 0; rank < ranks; ++rank) {
    SampleRank self(assembler, rank);
    assembler.setScratchChunks(rank, 2);
    std::vector<int> channels;
    std::vector<Operand> outputs;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != rank) channels.push_back(assembler.addChannel(rank, Access::Memory, peer));
      outputs.push_back(self.at(peer, BufferKind::Output, rank));
    }
    self.transfer(0, {self.own(BufferKind::Input, 0)}, {self.own(BufferKind::Scratch, 0)}, 0);
    for (int copy = 0; copy < copies; ++copy) {
      for (int sync = 0; sync < operations / copies - 1 || sync == 0; ++sync) self.sync(0);
      self.transfer(0, {self.own(BufferKind::Scratch, copy % 2)}, {self.own(BufferKind::Scratch, 1 - copy % 2)}, 0);
    }
    self.exchangeSignals(0, channels, channels);
    self.transfer(0, {self.own(BufferKind::Scratch, copies % 2)}, outputs, 0);
    self.exchangeSignals(0, channels, channels);
  }
  return assembler.finish();
}

/// All-reduce in place: every rank sends all to all, and reduces it. Transfers of three chunks, in pieces of `unit`
/// bytes: a piece that were reduced twice would be wrong.
constexpr Plan oneShotInPlacePlan(int ranks, std::uint64_t unit) {
  constexpr int chunks = 3;
  Assembler assembler({.collective = CollectiveKind::AllReduce,
                       .ranks = ranks,
                       .chunksPerPart = chunks,
                       .inPlace = true,
                       .threadsPerBlock = 256});
  for (int rank = 0; rank < ranks; ++rank) {
    SampleRank self(assembler, rank);
    assembler.setScratchChunks(rank, chunks * ranks);
    std::vector<int> channels;
    std::vector<Operand> contributions, slots;
    for (int peer = 0; peer < ranks; ++peer) {
      contributions.push_back(peer == rank ? self.own(BufferKind::Input, 0)
                                           : self.own(BufferKind::Scratch, chunks * peer));
      if (peer == rank) continue;
      slots.push_back(self.at(peer, BufferKind::Scratch, chunks * rank));
      channels.push_back(assembler.addChannel(rank, Access::Memory, peer));
    }
    assembler.add(rank, 0, {.kind = OperationKind::LoopBegin, .unitBytes = unit});
    self.transfer(0, {self.own(BufferKind::Input, 0)}, slots, 0, {.chunks = chunks});
    self.exchangeSignals(0, channels, channels);
    self.transfer(0, contributions, {self.own(BufferKind::Output, 0)}, 0, {.chunks = chunks});
    self.exchangeSignals(0, channels, channels);
    assembler.add(rank, 0, {.kind = OperationKind::LoopEnd});
  }
  return assembler.finish();
}

struct SamplePlan {
  std::string name;
  Plan plan;
};

/// Those without Port channels.
inline std::vector<SamplePlan> samplePlans(int ranks) {
  return {{"two-shot", twoShotPlan(ranks)},
          {"two-shot of 3 blocks", twoShotPlan(ranks, 3)},
          {"two-shot in a loop", twoShotPlan(ranks, 2, 200)},
          {"two-shot of packets", twoShotPacketPlan(ranks, 2)},
          {"one-shot of packets", oneShotPacketPlan(ranks, 2)},
          {"one-shot in place, in a loop", oneShotInPlacePlan(ranks, 64)},
          {"ring", ringPlan(ranks)},
          {"ring in place", ringPlan(ranks, true)},
          {"all-gather by reading, barriers", gatherByReadingPlan(ranks, false)},
          {"all-gather by reading, semaphores", gatherByReadingPlan(ranks, true)}};
}

}  // namespace mscclpp::plan
