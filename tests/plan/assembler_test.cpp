// Plans made in constant expressions and at run time.
#include "mscclpp/plan/assembler.hpp"

#include <doctest/doctest.h>

#include "all_pairs.hpp"
#include "mscclpp/plan/overlap.hpp"
#include "mscclpp/plan/static_plan.hpp"
#include "mscclpp/plan/syncs.hpp"

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

TEST_CASE("in place, an output chunk is the input chunk that the collective defines") {
  const auto output = [](int rank, int first) {
    return Operand{.buffer = BufferKind::Output, .rank = static_cast<std::int16_t>(rank), .first = first};
  };
  const Operand input{.buffer = BufferKind::Input, .rank = 1, .first = 1};
  const auto overlaps = [&](CollectiveKind collective, int first, int chunks, bool inPlace = true) {
    const Header header{.collective = collective, .ranks = 3, .chunksPerPart = 2, .inPlace = inPlace};
    const auto inputChunks = [&](int rank) { return inputChunksOf(header, rank); };
    return overlap(header, inputChunks, input, 1, output(1, first), chunks) &&
           !overlap(header, inputChunks, input, 1, output(2, first), chunks);
  };
  CHECK(overlaps(CollectiveKind::AllReduce, 1, 1));
  CHECK_FALSE(overlaps(CollectiveKind::AllReduce, 1, 1, false));
  CHECK_FALSE(overlaps(CollectiveKind::AllReduce, 0, 1));
  CHECK(overlaps(CollectiveKind::AllGather, 3, 1));
  CHECK(overlaps(CollectiveKind::AllGather, 0, 4));
  CHECK_FALSE(overlaps(CollectiveKind::AllGather, 4, 2));
  CHECK_FALSE(overlaps(CollectiveKind::AllGather, 1, 2));
  CHECK_FALSE(overlaps(CollectiveKind::ReduceScatter, 1, 1));  // it is input chunk 3
}

TEST_CASE("threads of a block are synchronised where the order of its operations needs it, and only there") {
  const auto chunk = [](int first, Form form = Form::Plain) {
    return Operand{.buffer = BufferKind::Scratch, .form = form, .first = first};
  };
  const std::vector<Operand> operands{chunk(0), chunk(1), chunk(2), chunk(3, Form::Packet)};
  const auto copy = [](int from, int to) {
    return Operation{.kind = OperationKind::Transfer, .chunks = 1, .sources = {from, 1}, .destinations = {to, 1}};
  };
  const Operation signal{.kind = OperationKind::Signal}, wait{.kind = OperationKind::Wait},
      barrier{.kind = OperationKind::Barrier}, sync{.kind = OperationKind::Sync};
  const auto overlaps = [](const Operand& a, int chunksOfA, const Operand& b, int chunksOfB) {
    const Header header{};
    return overlap(
        header, [](int) { return 0; }, a, chunksOfA, b, chunksOfB);
  };
  using Order = std::vector<std::int32_t>;
  const auto order = [&](const std::vector<Operation>& operations, SyncScope scope = SyncScope::Publish) {
    return SyncInsertion(operands, scope, overlaps).run(operations);
  };
  CHECK(order({copy(0, 1), copy(0, 2)}) == Order{0, 1});
  CHECK(order({copy(0, 1), copy(1, 2)}) == Order{0, -1, 1});
  CHECK(order({copy(1, 0), copy(2, 1)}) == Order{0, -1, 1});
  CHECK(order({copy(0, 2), copy(1, 2)}) == Order{0, -1, 1});
  CHECK(order({copy(0, 3), copy(3, 1)}) == Order{0, 1});      // the packets' flags are waited for
  CHECK(order({copy(3, 1), copy(0, 3)}) == Order{0, -1, 1});  // not before they are overwritten
  CHECK(order({copy(0, 1), signal, wait, wait, copy(0, 2)}) == Order{0, -1, 1, 2, 3, -1, 4});
  CHECK(order({copy(0, 1), signal, wait, copy(1, 2)}, SyncScope::Data) == Order{0, 1, 2, -1, 3});
  CHECK(order({copy(0, 1), barrier, copy(1, 2)}) == Order{0, 1, 2});
  CHECK(order({sync, copy(0, 1), sync, sync, copy(1, 2), barrier, sync, signal, sync}) == Order{1, 2, 4, 5, 7});
}

}  // namespace
}  // namespace mscclpp::plan
