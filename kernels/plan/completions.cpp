#include "kernels/plan/completions.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "mscclpp/kernels/plan/simulate.hpp"
#include "mscclpp/plan/overlap.hpp"

namespace mscclpp::plan {

namespace {

/// Of how many ranks' data the chunks of all buffers are the sum: of each of the cells into which shares divide them.
class Terms {
 public:
  explicit Terms(const Plan& plan) : plan_(plan) {
    for (const Operation& operation : plan.operations) cells_ = std::lcm(cells_, static_cast<int>(operation.shares));
    for (const RankPlan& rank : plan.rankPlans) {
      const std::array<std::int32_t, 3> chunks{rank.inputChunks, rank.outputChunks, rank.scratchChunks};
      auto& buffers = ranks_.emplace_back();
      for (std::size_t buffer = 0; buffer < chunks.size(); ++buffer)
        buffers[buffer].assign(static_cast<std::size_t>(chunks[buffer] * cells_), buffer == 0 ? 1 : 0);
    }
  }

  int cells() const { return cells_; }
  int& at(const Operand& operand, std::int32_t chunk, int cell) {
    const auto inputChunks = [&](int rank) { return plan_.rankPlans[static_cast<std::size_t>(rank)].inputChunks; };
    Operand moved = operand;
    moved.first += chunk;
    moved = canonical(plan_, inputChunks, moved);
    return ranks_[static_cast<std::size_t>(moved.rank)][static_cast<std::size_t>(moved.buffer)]
                 [static_cast<std::size_t>(moved.first * cells_ + cell)];
  }

 private:
  const Plan& plan_;
  int cells_ = 1;
  std::vector<std::array<std::vector<int>, 3>> ranks_;
};

bool sumsUp(CollectiveKind collective) {
  return collective == CollectiveKind::AllReduce || collective == CollectiveKind::Reduce ||
         collective == CollectiveKind::ReduceScatter;
}

}  // namespace

void setCompletions(Plan& plan) {
  for (Operation& operation : plan.operations) operation.completes = false;
  if (!sumsUp(plan.collective)) return;
  Terms terms(plan);
  bool isMixed = false;
  // A short message, whose loops run once. A proven plan has the same result in any order that its waits allow.
  for (const SimulatedOperation& done : simulate(plan, 1).operations) {
    const Range blocks = plan.rankPlans[static_cast<std::size_t>(done.rank)].blocks;
    const Range operations = plan.blocks[static_cast<std::size_t>(blocks.first + done.block)].operations;
    Operation& operation = plan.operations[static_cast<std::size_t>(operations.first + done.operation)];
    if (operation.kind != OperationKind::Transfer) continue;
    const int width = terms.cells() / operation.shares;
    bool hasComplete = false, hasPartial = false;
    for (std::int32_t chunk = 0; chunk < operation.chunks; ++chunk) {
      for (int cell = operation.share * width; cell < (operation.share + 1) * width; ++cell) {
        int total = 0;
        for (std::int32_t i = 0; i < operation.sources.count; ++i)
          total += terms.at(plan.operands[static_cast<std::size_t>(operation.sources.first + i)], chunk, cell);
        for (std::int32_t i = 0; i < operation.destinations.count; ++i)
          terms.at(plan.operands[static_cast<std::size_t>(operation.destinations.first + i)], chunk, cell) = total;
        (total == plan.ranks ? hasComplete : hasPartial) = true;
      }
    }
    operation.completes = operation.sources.count > 1 && hasComplete;
    isMixed = isMixed || (operation.completes && hasPartial);
  }
  if (!isMixed) return;
  for (Operation& operation : plan.operations) operation.completes = false;
}

bool canAverage(const Plan& plan) {
  return std::any_of(plan.operations.begin(), plan.operations.end(),
                     [](const Operation& operation) { return operation.completes; });
}

}  // namespace mscclpp::plan
