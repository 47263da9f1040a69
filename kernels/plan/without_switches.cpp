#include "mscclpp/kernels/plan/without_switches.hpp"

#include <algorithm>

#include "draft.hpp"
#include "message.hpp"
#include "mscclpp/kernels/plan/verify.hpp"
#include "mscclpp/plan/fault_message.hpp"
#include "mscclpp/plan/structure.hpp"

namespace mscclpp::plan {

namespace {

/// The chunks that an operand on a switch stands for, as operands of `rank`.
std::vector<Operand> membersOf(const Draft& draft, int rank, const Operand& operand) {
  std::vector<Operand> members;
  for (const int member : draft.ranks[rank].channels[operand.channel].members) {
    Operand one = operand;
    one.access = member == rank ? Access::Local : Access::Memory;
    one.rank = static_cast<std::int16_t>(member);
    one.channel = -1;
    members.push_back(one);
  }
  return members;
}

std::vector<Operand> expanded(const Draft& draft, int rank, const std::vector<Operand>& operands) {
  std::vector<Operand> all;
  for (const Operand& operand : operands) {
    const bool isSwitch = operand.access == Access::Switch;
    for (const Operand& one : isSwitch ? membersOf(draft, rank, operand) : std::vector{operand}) {
      all.push_back(one);
    }
  }
  return all;
}

/// The operands without those that repeat an earlier one: a store into a rank's own chunk and to all of its switch.
std::vector<Operand> distinct(const std::vector<Operand>& operands) {
  std::vector<Operand> kept;
  for (const Operand& operand : operands) {
    if (std::find(kept.begin(), kept.end(), operand) == kept.end()) kept.push_back(operand);
  }
  return kept;
}

/// Removes the switch channels, which nothing names any more; the others get new numbers.
void removeSwitches(DraftRank& rank) {
  std::vector<int> numbers;
  std::vector<DraftChannel> kept;
  for (const DraftChannel& channel : rank.channels) {
    numbers.push_back(countOf(kept));
    if (channel.access != Access::Switch) kept.push_back(channel);
  }
  rank.channels = kept;
  for (auto& steps : rank.blocks) {
    for (Step& step : steps) {
      const OperationKind kind = step.operation.kind;
      if (kind == OperationKind::Signal || kind == OperationKind::Wait || kind == OperationKind::Flush) {
        for (int& reference : step.references) reference = numbers[reference];
      }
      for (auto* operands : {&step.sources, &step.destinations}) {
        for (Operand& operand : *operands) {
          if (operand.channel >= 0) operand.channel = static_cast<std::int16_t>(numbers[operand.channel]);
        }
      }
    }
  }
}

}  // namespace

NamedPlan withoutSwitches(NamedPlan plan) {
  const auto isSwitch = [](const Channel& channel) { return channel.access == Access::Switch; };
  if (std::none_of(plan.channels.begin(), plan.channels.end(), isSwitch)) return plan;
  // What it names is looked up below.
  if (const Fault fault = StructureCheck(plan).run()) reject(describe(plan, fault));
  Draft draft = draftOf(plan);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    auto& blocks = draft.ranks[rank].blocks;
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      for (std::size_t i = 0; i < blocks[block].size(); ++i) {
        Step& step = blocks[block][i];
        for (const Operand& source : step.sources) {
          if (source.access != Access::Switch || source.form == Form::Plain) continue;
          reject(placeOf(draft, rank, static_cast<int>(block), static_cast<int>(i)),
                 ": a switch channel does not reduce packets");
        }
        step.sources = expanded(draft, rank, step.sources);
        step.destinations = distinct(expanded(draft, rank, step.destinations));
      }
    }
    removeSwitches(draft.ranks[rank]);
  }
  return placed(lower(draft));
}

}  // namespace mscclpp::plan
