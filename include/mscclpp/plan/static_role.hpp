// The roles of a plan that is a constant of the program.
#pragma once

#include "mscclpp/plan/specialised.hpp"
#include "mscclpp/plan/static_plan.hpp"

namespace mscclpp::plan {

/// Block `block` of rank `rank` of a plan, as a role of its own: for executeRoles(). PlanOf: a type whose static
/// constexpr member `value` is the StaticPlan (static_plan.hpp).
template <class PlanOf, int rank, int block>
struct StaticRole {
  static constexpr int firstBlock = block;
  static constexpr int blocks = 1;

 private:
  static constexpr const auto& plan = PlanOf::value;
  static constexpr Range range = plan.blocks.entries[plan.rankPlans.entries[rank].blocks.first + block].operations;

  struct Operations {
    Operation entries[range.count > 0 ? range.count : 1] = {};
    constexpr const Operation& operator[](int i) const { return entries[i]; }
  };
  static constexpr Operations copyOperations() {
    Operations operations;
    for (std::int32_t i = 0; i < range.count; ++i) operations.entries[i] = plan.operations.entries[range.first + i];
    return operations;
  }
  /// Nothing differs from the first block.
  template <class Entry>
  struct NoSteps {
    constexpr Entry operator[](int) const { return {}; }
  };
  /// The ranges of operations are those of the whole plan.
  struct Operands {
    constexpr const Operand& operator[](int i) const { return plan.operands.entries[i]; }
  };
  struct References {
    constexpr std::int32_t operator[](int i) const { return plan.references.entries[i]; }
  };

 public:
  static constexpr int operationCount = range.count;
  static constexpr Operations operations = copyOperations();
  static constexpr NoSteps<Operation> operationSteps{};
  static constexpr Operands operands{};
  static constexpr NoSteps<Operand> operandSteps{};
  static constexpr References references{};
  static constexpr NoSteps<std::int32_t> referenceSteps{};
};

namespace detail {

/// What a constant plan says of its calls.
template <class PlanOf>
struct ShapeOf {
  static constexpr std::int32_t chunksPerPart = PlanOf::value.chunksPerPart;
  static constexpr int format = -1;
};

template <class Op>
inline constexpr bool isAverage = false;
template <>
inline constexpr bool isAverage<Average> = true;

template <class T, class Op, class PlanOf, int rank, class GridType, int... blocks>
MSCCLPP_INLINE void executeStatic(const GridType& grid, const ExecutionArgs& args, IntegerSequence<blocks...>) {
  executeRoles<T, Op, ShapeOf<PlanOf>, StaticRole<PlanOf, rank, blocks>...>(grid, args);
}

}  // namespace detail

/// Executes rank `rank` of a plan that is a constant: all its operations are code. Arguments as for executeRoles().
template <class T, class Op, class PlanOf, int rank, class GridType>
MSCCLPP_INLINE void executeStatic(const GridType& grid, const ExecutionArgs& args) {
  static_assert(!detail::isAverage<Op>, "which reduction is the last is not known here: use Sum and divide");
  detail::executeStatic<T, Op, PlanOf, rank>(
      grid, args, detail::MakeSequence<PlanOf::value.rankPlans.entries[rank].blocks.count>{});
}

/// Calls f.template operator()<r>() with the rank as a constant: each rank's code is a kernel of its own. Host code.
/// Nothing is called for a rank that the plan does not have.
template <class PlanOf, int first = 0, class F>
void withStaticRank(int rank, F&& f) {
  if constexpr (first < PlanOf::value.ranks) {
    if (rank == first) return f.template operator()<first>();
    withStaticRank<PlanOf, first + 1>(rank, f);
  }
}

}  // namespace mscclpp::plan
