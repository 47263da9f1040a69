#include "draft.hpp"

#include <algorithm>
#include <limits>
#include <span>

#include "message.hpp"
#include "mscclpp/plan/assembler.hpp"
#include "mscclpp/plan/fault_message.hpp"
#include "mscclpp/plan/overlap.hpp"
#include "mscclpp/plan/structure.hpp"

namespace mscclpp::plan {

namespace {

template <class T>
std::vector<T> entries(const std::vector<T>& list, const Range& range) {
  return {list.begin() + range.first, list.begin() + range.first + range.count};
}

bool contains(std::size_t size, const Range& range) {
  return range.first >= 0 && range.count >= 0 && range.first <= static_cast<std::int64_t>(size) - range.count;
}

/// The first number of a plan that is outside of the array that it refers to, as the checker would report it.
Fault findWrongNumber(const NamedPlan& plan) {
  const auto isRank = [&](int rank) { return rank >= 0 && rank < plan.ranks; };
  if (plan.ranks < 1 || countOf(plan.rankPlans) != plan.ranks) return {.kind = FaultKind::WrongHeader};
  for (int r = 0; r < plan.ranks; ++r) {
    const RankPlan& rank = plan.rankPlans[r];
    Fault fault{.rank = r};
    const auto report = [&](FaultKind kind, int index = -1) {
      fault.kind = kind;
      fault.index = index;
      return fault;
    };
    if (!contains(plan.blocks.size(), rank.blocks) || !contains(plan.channels.size(), rank.channels) ||
        !contains(plan.references.size(), rank.semaphores)) {
      return report(FaultKind::WrongRange);
    }
    for (int c = 0; c < rank.channels.count; ++c) {
      const Channel& channel = plan.channels[rank.channels.first + c];
      if (!contains(plan.references.size(), channel.members)) return report(FaultKind::WrongRange, c);
      if (!isRank(channel.peer)) return report(FaultKind::RankOutOfRange, c);
      for (const int member : entries(plan.references, channel.members)) {
        if (!isRank(member)) return report(FaultKind::RankOutOfRange, c);
      }
    }
    for (fault.block = 0; fault.block < rank.blocks.count; ++fault.block) {
      const Range operations = plan.blocks[rank.blocks.first + fault.block].operations;
      fault.operation = -1;
      if (!contains(plan.operations.size(), operations)) return report(FaultKind::WrongRange);
      for (fault.operation = 0; fault.operation < operations.count; ++fault.operation) {
        const Operation& operation = plan.operations[operations.first + fault.operation];
        if (!contains(plan.operands.size(), operation.sources) ||
            !contains(plan.operands.size(), operation.destinations) ||
            !contains(plan.references.size(), operation.references) || operation.origin >= countOf(plan.origins)) {
          return report(FaultKind::WrongRange);
        }
        for (const Range& list : {operation.sources, operation.destinations}) {
          for (const Operand& operand : entries(plan.operands, list)) {
            fault.buffer = operand.buffer;
            fault.bufferRank = operand.rank;
            fault.chunk = operand.first;
            if (!isRank(operand.rank)) return report(FaultKind::RankOutOfRange);
            if (operand.first < 0) return report(FaultKind::ChunkOutOfRange);
            const bool hasChannel = operand.access == Access::Port || operand.access == Access::Switch;
            if (hasChannel && (operand.channel < 0 || operand.channel >= rank.channels.count)) {
              return report(FaultKind::ChannelOutOfRange, operand.channel);
            }
          }
        }
        const bool ofSemaphores = operation.kind == OperationKind::Acquire || operation.kind == OperationKind::Release;
        for (const int reference : entries(plan.references, operation.references)) {
          if (reference >= 0 && reference < (ofSemaphores ? rank.semaphores : rank.channels).count) continue;
          return report(ofSemaphores ? FaultKind::SemaphoreOutOfRange : FaultKind::ChannelOutOfRange, reference);
        }
      }
    }
  }
  for (int i = 0; i < countOf(plan.expectations); ++i) {
    const Expectation& expectation = plan.expectations[i];
    if (!isRank(expectation.rank) || !contains(plan.references.size(), expectation.contributions)) {
      return {.kind = FaultKind::WrongExpectation, .index = i};
    }
  }
  return {};
}

}  // namespace

int Draft::origin(const std::string& text) {
  if (text.empty()) return -1;
  const auto found = std::find(origins.begin(), origins.end(), text);
  if (found != origins.end()) return static_cast<int>(found - origins.begin());
  origins.push_back(text);
  return countOf(origins) - 1;
}

std::string refusesProgram(const Collective& collective, int instances) {
  if (collective.ranks < 1) return textOf("the collective has ", collective.ranks, " ranks");
  if (collective.kind != CollectiveKind::Custom && collective.chunkFactor < 1) return "the collective has no chunks";
  if (collective.ranks > maxPlanRanks) {
    return textOf("the collective has ", collective.ranks, " ranks; the most are ", maxPlanRanks);
  }
  const std::int64_t perRank = collective.kind == CollectiveKind::Custom
                                   ? std::max<std::int64_t>(collective.inputChunks, collective.outputChunks)
                               : collective.kind == CollectiveKind::AllReduce
                                   ? std::int64_t{collective.ranks} * collective.chunkFactor
                                   : collective.chunkFactor;
  std::int64_t chunks = perRank * collective.ranks;
  if (chunks <= maxCells && collective.kind != CollectiveKind::Custom) {
    const Header header{.collective = collective.kind,
                        .ranks = collective.ranks,
                        .root = collective.root,
                        .chunksPerPart = static_cast<std::int32_t>(perRank)};
    chunks = 0;
    for (int r = 0; r < collective.ranks; ++r) {
      chunks += std::int64_t{inputChunksOf(header, r)} + outputChunksOf(header, r);
    }
  }
  if (chunks > maxCells) {
    return textOf("the inputs and outputs of ", collective.ranks, " ranks have ", chunks, " chunks; at most ", maxCells,
                  " can be checked: use fewer ranks or chunks");
  }
  if (instances >= 1 && instances <= maxInstances) return {};
  return textOf("instances is ", instances, "; it is 1 to ", maxInstances,
                ": the blocks of all instances are resident on a GPU at once");
}

std::string refusesOperations(int operations) {
  constexpr int most = 1 << 18;
  if (operations <= most) return {};
  return textOf("the program has more than ", most,
                " operations, too many for its plan to be checked: use fewer ranks or chunks");
}

void requireName(const std::string& name) {
  constexpr std::size_t most = 256;
  const auto isContinuation = [&](std::size_t i) { return i < name.size() && (name[i] & 0xC0) == 0x80; };
  bool right = name.size() <= most;
  for (std::size_t i = 0; i < name.size() && right;) {
    const auto byte = static_cast<unsigned char>(name[i++]);
    right = byte >= 0x20 && byte != 0x7F;
    if (byte < 0x80) continue;
    const int more = byte >= 0xC2 && byte < 0xE0   ? 1
                     : byte >= 0xE0 && byte < 0xF0 ? 2
                     : byte >= 0xF0 && byte < 0xF5 ? 3
                                                   : 0;
    right = more > 0;
    for (int k = 0; k < more && right; ++k) right = isContinuation(i++);
  }
  if (right) return;
  reject("plan: the name ", quoted(name), " is longer than ", most, " bytes, has control characters or is not UTF-8");
}

Draft makeDraft(const Header& header, std::string name) {
  requireName(name);
  Draft draft{.header = header, .name = std::move(name)};
  draft.ranks.resize(header.ranks);
  for (int r = 0; r < header.ranks; ++r) {
    draft.ranks[r].inputChunks = inputChunksOf(header, r);
    draft.ranks[r].outputChunks = outputChunksOf(header, r);
  }
  return draft;
}

Draft draftOf(const NamedPlan& plan) {
  if (const Fault fault = findWrongNumber(plan)) reject(describe(plan, fault));
  Draft draft{.header = plan, .name = plan.name, .origins = plan.origins};
  for (const RankPlan& from : plan.rankPlans) {
    DraftRank rank{.inputChunks = from.inputChunks,
                   .outputChunks = from.outputChunks,
                   .scratchChunks = from.scratchChunks,
                   .semaphores = entries(plan.references, from.semaphores)};
    for (const Channel& channel : entries(plan.channels, from.channels)) {
      rank.channels.push_back(
          {channel.access, channel.peer, channel.buffer, entries(plan.references, channel.members)});
    }
    for (const Block& block : entries(plan.blocks, from.blocks)) {
      auto& steps = rank.blocks.emplace_back();
      for (const Operation& operation : entries(plan.operations, block.operations)) {
        Step step{operation, entries(plan.operands, operation.sources), entries(plan.operands, operation.destinations),
                  entries(plan.references, operation.references)};
        step.operation.sources = step.operation.destinations = step.operation.references = {};
        steps.push_back(std::move(step));
      }
    }
    draft.ranks.push_back(std::move(rank));
  }
  for (const Expectation& from : plan.expectations) {
    DraftExpectation expectation{from.rank, from.chunk};
    const auto pairs = entries(plan.references, from.contributions);
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) expectation.contributions.push_back({pairs[i], pairs[i + 1]});
    draft.expectations.push_back(std::move(expectation));
  }
  return draft;
}

NamedPlan lower(const Draft& draft) {
  Assembler assembler(draft.header);
  for (int r = 0; r < countOf(draft.ranks); ++r) {
    const DraftRank& rank = draft.ranks[r];
    assembler.setChunks(r, rank.inputChunks, rank.outputChunks);
    assembler.setScratchChunks(r, rank.scratchChunks);
    if (countOf(rank.channels) > std::numeric_limits<std::int16_t>::max()) {
      reject("plan \"", draft.name, "\": rank ", r, " has ", rank.channels.size(), " channels; the most are ",
             std::numeric_limits<std::int16_t>::max(), ": use fewer instances");
    }
    for (const DraftChannel& channel : rank.channels) {
      if (channel.access == Access::Switch) {
        assembler.addSwitchChannel(r, channel.buffer, channel.members);
      } else {
        assembler.addChannel(r, channel.access, channel.peer);
      }
    }
    for (const int value : rank.semaphores) assembler.addSemaphore(r, value);
    for (int b = 0; b < countOf(rank.blocks); ++b) {
      for (const Step& step : rank.blocks[b]) {
        switch (step.operation.kind) {
          case OperationKind::Transfer:
            assembler.transfer(r, b, step.sources, step.destinations, step.operation.chunks, step.operation);
            break;
          case OperationKind::Signal:
          case OperationKind::Wait:
          case OperationKind::Flush:
          case OperationKind::Acquire:
          case OperationKind::Release:
            assembler.synchronise(r, b, step.operation.kind, step.references, step.operation);
            break;
          default:
            assembler.add(r, b, step.operation);
        }
      }
    }
  }
  for (const DraftExpectation& expectation : draft.expectations) {
    assembler.expect(expectation.rank, expectation.chunk, expectation.contributions);
  }
  NamedPlan plan;
  static_cast<Plan&>(plan) = assembler.finish();
  plan.name = draft.name;
  plan.origins = draft.origins;
  return plan;
}

std::string placeOf(const Draft& draft, int rank, int block, int operation) {
  std::string text = textOf("rank ", rank, ", block ", block, ", operation ", operation);
  const int origin = draft.ranks[rank].blocks[block][operation].operation.origin;
  return origin >= 0 ? textOf(text, " (", draft.origins[origin], ")") : text;
}

int chunksOf(const DraftRank& rank, BufferKind buffer) {
  return buffer == BufferKind::Input ? rank.inputChunks
                                     : (buffer == BufferKind::Output ? rank.outputChunks : rank.scratchChunks);
}

Operand canonical(const Draft& draft, Operand operand, std::int32_t chunk) {
  operand.first += chunk;
  return canonical(
      draft.header, [&](int rank) { return draft.ranks[rank].inputChunks; }, operand);
}

}  // namespace mscclpp::plan
