// What one rank executes of a plan: the lists of each of its blocks, and what they need.
#pragma once

#include <cstdint>
#include <vector>

#include "mscclpp/plan/execution.hpp"
#include "mscclpp/plan/plan.hpp"
#include "mscclpp/plan/structure.hpp"

namespace mscclpp::plan {

/// The operations of a block. Their ranges refer to the operands and references here.
struct BlockLists {
  std::vector<Operation> operations;
  std::vector<Operand> operands;
  std::vector<std::int32_t> references;
};

/// The lists for an interpreter: transfers of one chunk each. The `origin` of an operation becomes the index, in the
/// lists, of the operation that it is a part of: for the records of failed waits.
constexpr BlockLists stepsOf(const BlockLists& lists) {
  BlockLists steps;
  for (std::int32_t o = 0; o < countOf(lists.operations); ++o) {
    const Operation& operation = lists.operations[o];
    const std::int32_t count = operation.kind == OperationKind::Transfer ? operation.chunks : 1;
    for (std::int32_t chunk = 0; chunk < count; ++chunk) {
      Operation step = operation;
      step.origin = o;
      const auto addOperands = [&](const Range& range) {
        const Range added{countOf(steps.operands), range.count};
        for (std::int32_t i = 0; i < range.count; ++i) {
          steps.operands.push_back(lists.operands[range.first + i]);
          steps.operands.back().first += chunk;
        }
        return added;
      };
      if (operation.kind == OperationKind::Transfer) {
        step.chunks = 1;
        step.position += chunk;
      }
      step.sources = addOperands(operation.sources);
      step.destinations = addOperands(operation.destinations);
      step.references = {countOf(steps.references), operation.references.count};
      for (std::int32_t i = 0; i < operation.references.count; ++i)
        steps.references.push_back(lists.references[operation.references.first + i]);
      steps.operations.push_back(step);
    }
  }
  return steps;
}

/// The lists of stepsOf() as an interpreter reads them, where they lie; without windows.
constexpr BlockProgram viewOf(const BlockLists& lists) {
  return {lists.operations.data(),   lists.operands.data(),   lists.references.data(),  nullptr,
          countOf(lists.operations), countOf(lists.operands), countOf(lists.references)};
}

/// The blocks of a rank, and the sizes of what they share.
struct RankProgram {
  std::vector<BlockLists> blocks;
  std::vector<Channel> channels;
  std::vector<std::int32_t> peerChannels;  ///< of each Memory or Port channel, the index of the other end at the peer
  std::vector<std::int32_t> semaphores;    ///< initial values
  std::int32_t barriers = 0;
  bool usesPackets = false;  ///< a scratch chunk holds packets, on any rank
  bool usesPorts = false;    ///< on any rank
  bool usesSwitch = false;   ///< on any rank
  /// Inputs or outputs are read or written by other ranks or proxies.
  bool reachesUserBuffers = false;
  std::int32_t scratchChunks = 0;  ///< the largest of all ranks
};

namespace detail {

/// The ranks that write packets into each scratch chunk of a rank; -1: none, -2: several.
constexpr std::vector<std::int32_t> packetWriters(const Plan& plan, std::int32_t rank) {
  std::vector<std::int32_t> writers(plan.rankPlans[rank].scratchChunks, -1);
  for (std::int32_t other = 0; other < plan.ranks; ++other) {
    const Range blocks = plan.rankPlans[other].blocks;
    for (std::int32_t b = blocks.first; b < blocks.first + blocks.count; ++b) {
      const Range operations = plan.blocks[b].operations;
      for (std::int32_t o = operations.first; o < operations.first + operations.count; ++o) {
        const Operation& operation = plan.operations[o];
        if (operation.kind != OperationKind::Transfer) continue;
        for (std::int32_t d = 0; d < operation.destinations.count; ++d) {
          const Operand& operand = plan.operands[operation.destinations.first + d];
          if (operand.form != Form::Packet || operand.rank != rank) continue;
          for (std::int32_t i = 0; i < operation.chunks; ++i) {
            std::int32_t& writer = writers[operand.first + i];
            writer = writer == -1 || writer == other ? other : -2;
          }
        }
      }
    }
  }
  return writers;
}

}  // namespace detail

/// The program of a rank of a plan that was checked (plan/check.hpp). In operands that are packets of this rank's
/// scratch, `channel` becomes the rank that writes them, or -1: for the records of failed waits.
constexpr RankProgram programOf(const Plan& plan, std::int32_t rank) {
  RankProgram program;
  const RankPlan& own = plan.rankPlans[rank];
  const std::vector<std::int32_t> ends = otherEnds(plan);
  for (std::int32_t c = own.channels.first; c < own.channels.first + own.channels.count; ++c) {
    const Channel& channel = plan.channels[c];
    program.channels.push_back(channel);
    program.peerChannels.push_back(
        channel.access == Access::Switch ? -1 : ends[c] - plan.rankPlans[channel.peer].channels.first);
  }
  for (std::int32_t s = 0; s < own.semaphores.count; ++s)
    program.semaphores.push_back(plan.references[own.semaphores.first + s]);

  const std::vector<std::int32_t> writers = detail::packetWriters(plan, rank);
  for (std::int32_t b = 0; b < own.blocks.count; ++b) {
    BlockLists lists;
    const Range operations = plan.blocks[own.blocks.first + b].operations;
    const auto addOperands = [&](const Range& range) {
      const Range added{countOf(lists.operands), range.count};
      for (std::int32_t i = 0; i < range.count; ++i) {
        Operand operand = plan.operands[range.first + i];
        if (operand.form == Form::Packet && operand.access == Access::Local) {
          const std::int32_t writer = writers[operand.first];
          operand.channel = static_cast<std::int16_t>(writer < 0 ? -1 : writer);
        }
        lists.operands.push_back(operand);
      }
      return added;
    };
    for (std::int32_t o = 0; o < operations.count; ++o) {
      Operation operation = plan.operations[operations.first + o];
      operation.sources = addOperands(operation.sources);
      operation.destinations = addOperands(operation.destinations);
      const Range references = operation.references;
      operation.references = {countOf(lists.references), references.count};
      for (std::int32_t i = 0; i < references.count; ++i)
        lists.references.push_back(plan.references[references.first + i]);
      if (operation.kind == OperationKind::Barrier && operation.index >= program.barriers)
        program.barriers = operation.index + 1;
      lists.operations.push_back(operation);
    }
    program.blocks.push_back(lists);
  }

  for (const RankPlan& of : plan.rankPlans)
    if (of.scratchChunks > program.scratchChunks) program.scratchChunks = of.scratchChunks;
  for (const Operand& operand : plan.operands) {
    program.usesPackets = program.usesPackets || operand.form == Form::Packet;
    program.usesSwitch = program.usesSwitch || operand.access == Access::Switch;
    program.reachesUserBuffers =
        program.reachesUserBuffers || (operand.access != Access::Local && operand.buffer != BufferKind::Scratch);
  }
  for (const Operation& operation : plan.operations) {
    if (operation.kind != OperationKind::Transfer || operation.destinations.count == 0) continue;
    if (plan.operands[operation.destinations.first].access != Access::Port) continue;
    program.reachesUserBuffers =
        program.reachesUserBuffers || plan.operands[operation.sources.first].buffer != BufferKind::Scratch;
  }
  for (const Channel& channel : plan.channels) {
    program.usesPorts = program.usesPorts || channel.access == Access::Port;
    program.usesSwitch = program.usesSwitch || channel.access == Access::Switch;
  }
  return program;
}

}  // namespace mscclpp::plan
