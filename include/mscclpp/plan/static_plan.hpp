// A plan in arrays of fixed size: a constexpr value beside the kernel that executes it.
#pragma once

#include <cstdint>

#include "mscclpp/config.hpp"
#include "mscclpp/plan/operation.hpp"
#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// An array with a count that may be zero. Not std::array, whose operators are no device functions.
template <class T, std::int32_t n>
struct FixedArray {
  T entries[n > 0 ? n : 1] = {};

  MSCCLPP_HOST_DEVICE static constexpr std::int32_t size() { return n; }
};

/// The sizes of the arrays of a plan.
struct PlanSizes {
  std::int32_t rankPlans, blocks, operations, operands, channels, references;
};

constexpr PlanSizes sizesOf(const Plan& plan) {
  return {countOf(plan.rankPlans), countOf(plan.blocks),   countOf(plan.operations),
          countOf(plan.operands),  countOf(plan.channels), countOf(plan.references)};
}

/// What an executor needs of a plan, without names, expectations and origins.
template <PlanSizes sizes>
struct StaticPlan : Header {
  FixedArray<RankPlan, sizes.rankPlans> rankPlans;
  FixedArray<Block, sizes.blocks> blocks;
  FixedArray<Operation, sizes.operations> operations;
  FixedArray<Operand, sizes.operands> operands;
  FixedArray<Channel, sizes.channels> channels;
  FixedArray<std::int32_t, sizes.references> references;
};

/// The plan that `make`, a constexpr function without arguments, returns, as a constant:
/// `struct MyRing { static constexpr auto value = freeze<makeMyRing>(); };`
/// (A lambda will do in host code; nvcc 13 cannot name one here.)
template <auto make>
consteval auto freeze() {
  constexpr PlanSizes sizes = sizesOf(make());
  const Plan plan = make();
  StaticPlan<sizes> fixed;
  static_cast<Header&>(fixed) = plan;
  const auto copy = [](const auto& from, auto& to) {
    for (std::int32_t i = 0; i < to.size(); ++i) to.entries[i] = from[i];
  };
  copy(plan.rankPlans, fixed.rankPlans);
  copy(plan.blocks, fixed.blocks);
  copy(plan.operations, fixed.operations);
  copy(plan.operands, fixed.operands);
  copy(plan.channels, fixed.channels);
  copy(plan.references, fixed.references);
  return fixed;
}

}  // namespace mscclpp::plan
