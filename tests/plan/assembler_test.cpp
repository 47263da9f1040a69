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

TEST_CASE("a plan of the assembler has its operations in the order of ranks, blocks and calls") {
  const Plan plan = fourRanks();
  REQUIRE(plan.rankPlans.size() == 4);
  CHECK(plan.blocks.size() == 4);
  for (int rank = 0; rank < 4; ++rank) {
    const RankPlan& of = plan.rankPlans[rank];
    CHECK(of.blocks == Range{rank, 1});
    CHECK(of.channels == Range{3 * rank, 3});
    CHECK(of.inputChunks == 4);
    CHECK(of.outputChunks == 4);
    CHECK(of.scratchChunks == 4);
    const Range operations = plan.blocks[rank].operations;
    REQUIRE(operations.count == 12);
    CHECK(plan.operations[operations.first].kind == OperationKind::Transfer);
    const Operation& reduction = plan.operations[operations.first + 7];
    REQUIRE(reduction.kind == OperationKind::Transfer);
    CHECK(reduction.sources.count == 4);
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
