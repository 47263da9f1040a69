// The execution of a plan by emulated ranks: the memory that an executor would set up.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "mscclpp/emulation/launch.hpp"
#include "mscclpp/emulation/symmetric_buffers.hpp"
#include "mscclpp/plan/interpreter.hpp"
#include "mscclpp/plan/program_windows.hpp"
#include "mscclpp/plan/rank_program.hpp"

namespace mscclpp::plan {

/// Ranks of a plan without ports. Scratch chunks have room for chunks of up to `slotBytes` bytes of data.
/// mostSharedBytes: of a program; longer ones are copied in parts.
class EmulatedPlan {
 public:
  EmulatedPlan(const Plan& plan, std::uint64_t slotBytes, PacketFormat format, std::uint64_t firstEpoch = 1,
               std::size_t mostSharedBytes = std::size_t{48} << 10)
      : plan_(plan), format_(format), slotPitch_(packetBytes(format, (slotBytes + 15) / 16 * 16)) {
    for (int rank = 0; rank < plan.ranks; ++rank) programs_.push_back(programOf(plan, rank));
    const auto halves = plan.doubleScratch ? 2u : 1u;
    scratch_.emplace(plan.ranks, halves * programs_[0].scratchChunks * slotPitch_);
    for (int rank = 0; rank < plan.ranks; ++rank) {
      Memory& memory = memories_.emplace_back();
      const RankProgram& program = programs_[rank];
      memory.epochs.assign(program.blocks.size(), firstEpoch);
      memory.barriers.resize(program.barriers + 1);
      memory.semaphores.assign(program.semaphores.begin(), program.semaphores.end());
      memory.inbound.resize(program.channels.size());
      memory.consumed.resize(program.channels.size());
      for (const BlockLists& block : program.blocks) {
        memory.steps.push_back(stepsOf(block));
        memory.programs.push_back(viewOf(memory.steps.back()));
        memory.windows.push_back(windowsOf(memory.programs.back(), mostSharedBytes));
        memory.programs.back().windows = memory.windows.back().ofOperations.data();
        sharedBytes_ = std::max(sharedBytes_, memory.windows.back().bytes);
      }
    }
    for (int rank = 0; rank < plan.ranks; ++rank) {
      for (std::size_t c = 0; c < programs_[rank].channels.size(); ++c) {
        ChannelEnd end{};
        end.access = Access::Memory;
        end.peer = programs_[rank].channels[c].peer;
        end.outbound = &memories_[end.peer].inbound[programs_[rank].peerChannels[c]];
        end.inbound = &memories_[rank].inbound[c];
        end.consumed = &memories_[rank].consumed[c];
        memories_[rank].channels.push_back(end);
      }
    }
  }

  ExecutionArgs args(int rank, const Window<>& input, const Window<>& output, const Message& message, ReduceOp op,
                     const BoundedWait& wait) {
    Memory& memory = memories_[rank];
    ExecutionArgs args{};
    args.buffers[0] = input;
    args.buffers[1] = output;
    args.buffers[2] = scratch_->window();
    args.message = message;
    args.slotPitch = slotPitch_;
    args.scratchHalf = plan_.doubleScratch ? programs_[0].scratchChunks * slotPitch_ : 0;
    args.state = {memory.epochs.data(), memory.barriers.data(), memory.semaphores.data()};
    args.channels = memory.channels.data();
    args.programs = memory.programs.data();
    args.rank = rank;
    args.ranks = plan_.ranks;
    args.format = format_;
    args.op = {op};
    args.wait = wait;
    return args;
  }

  emulation::Shape shape(int threads) const {
    return {.ranks = plan_.ranks,
            .blocks = static_cast<int>(programs_[0].blocks.size()),
            .threads = threads,
            .sharedBytes = sharedBytes_};
  }
  std::byte* scratch(int rank) const { return scratch_->at(rank); }
  std::uint64_t epoch(int rank, int block) const { return memories_[rank].epochs[block]; }

 private:
  struct Memory {
    std::vector<std::uint64_t> epochs, semaphores, inbound, consumed;
    std::vector<GridBarrier> barriers;
    std::vector<ChannelEnd> channels;
    std::deque<BlockLists> steps;
    std::vector<BlockProgram> programs;
    std::vector<ProgramWindows> windows;
  };

  Plan plan_;
  PacketFormat format_;
  std::uint64_t slotPitch_;
  std::vector<RankProgram> programs_;
  std::optional<emulation::SymmetricBuffers> scratch_;
  std::deque<Memory> memories_;
  std::size_t sharedBytes_ = 0;
};

}  // namespace mscclpp::plan
