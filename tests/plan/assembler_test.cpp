// Plans made in constant expressions and at run time.
#include "mscclpp/plan/assembler.hpp"

#include <doctest/doctest.h>

#include "all_pairs.hpp"
#include "mscclpp/plan/static_plan.hpp"

namespace mscclpp::plan {
namespace {

constexpr Plan fourRanks() {
  return twoShotAllReduce(4);
}
constexpr auto fixedPlan = freeze<fourRanks>();

TEST_CASE("a plan has its operations in the order of ranks, blocks and calls") {
  const Plan plan = twoShotAllReduce(4, 2);
  REQUIRE(plan.rankPlans.size() == 4);
  CHECK(plan.blocks.size() == 8);
  for (int rank = 0; rank < 4; ++rank) {
    const RankPlan& of = plan.rankPlans[rank];
    CHECK(of.blocks == Range{2 * rank, 2});
    CHECK(of.channels == Range{6 * rank, 6});
    CHECK(of.inputChunks == 8);
    CHECK(of.outputChunks == 8);
    CHECK(of.scratchChunks == (rank == 3 ? 6 : 8));  // as far as slots are named
    const Range operations = plan.blocks[2 * rank + 1].operations;
    REQUIRE(operations.count == 11);  // three copies, sync, signal, wait, sync, reduction, sync, signal, wait
    CHECK(plan.operations[operations.first].kind == OperationKind::Transfer);
    const Operation& reduction = plan.operations[operations.first + 7];
    REQUIRE(reduction.kind == OperationKind::Transfer);
    CHECK(reduction.sources.count == 4);
    CHECK(reduction.position == 2 * rank + 1);
    CHECK(plan.operands[reduction.destinations.first + rank].access == Access::Local);
    CHECK(plan.operands[reduction.destinations.first + (rank + 1) % 4].access == Access::Memory);
  }
}

TEST_CASE("a frozen plan has what the plan has") {
  const Plan plan = fourRanks();
  static_assert(fixedPlan.ranks == 4);
  REQUIRE(fixedPlan.operations.size() == countOf(plan.operations));
  REQUIRE(fixedPlan.operands.size() == countOf(plan.operands));
  for (int i = 0; i < fixedPlan.operations.size(); ++i) CHECK(fixedPlan.operations.entries[i] == plan.operations[i]);
  for (int i = 0; i < fixedPlan.operands.size(); ++i) CHECK(fixedPlan.operands.entries[i] == plan.operands[i]);
}

}  // namespace
}  // namespace mscclpp::plan
