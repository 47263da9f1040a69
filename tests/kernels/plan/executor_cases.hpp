// Calls of plans by an executor: whole outputs, for buffers of any kind.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/kernels/executor.hpp"
#include "mscclpp/plan/static_role.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "tests/plan/plan_reference.hpp"
#include "tests/plan/sample_plans.hpp"

namespace mscclpp::test {

inline ExecutionPlan executionPlan(const plan::Plan& plan, int rank, const std::string& name = "sample") {
  plan::NamedPlan named;
  static_cast<plan::Plan&>(named) = plan;
  named.name = name;
  return ExecutionPlan(std::move(named), rank);
}

template <class T>
constexpr DataType findDataType() {
  for (int type = 0; type <= static_cast<int>(DataType::FLOAT64); ++type) {
    const bool isIt = visit(
        static_cast<DataType>(type), [](auto tag) { return std::is_same_v<typename decltype(tag)::Type, T>; },
        [] { return false; });
    if (isIt) return static_cast<DataType>(type);
  }
  return DataType::AUTO;
}
template <class T>
inline constexpr DataType dataTypeOf = findDataType<T>();

/// A rank's message: its input, at the beginning of `in`, and what its whole output, `out`, must be.
template <class T>
struct PlanMessage {
  std::vector<T> input;
  std::vector<T> expected;
};

/// The message of `rank`, the same function of the seed on all ranks. Op: of the reduction.
template <class T, class Op = Sum>
PlanMessage<T> planMessage(const plan::Plan& plan, int rank, std::size_t count, unsigned seed) {
  const auto inputs = plan::exactInputs<T>(count, plan.ranks, seed);
  return {inputs[static_cast<std::size_t>(rank)], plan::expectedOutput<T, Op>(plan.collective, inputs)};
}

constexpr plan::Plan constantTwoShot() {
  return plan::twoShotPlan(2, 2);
}
/// A plan of two ranks with two blocks each, as device code reads it.
struct ConstantTwoShot {
  static constexpr auto value = plan::freeze<constantTwoShot>();
};

/// A producer, the plan and a consumer in one kernel: twice the sum of the ranks' values. By all threads of the grid.
/// `barrier`: of this rank, for its blocks.
template <int rank, class GridType>
MSCCLPP_INLINE void produceReduceDouble(const GridType& grid, const plan::ExecutionArgs& args, GridBarrier* barrier,
                                        float* input, float* output, std::size_t count, float value) {
  const auto perBlock = static_cast<std::size_t>(grid.block().size());
  const std::size_t first =
      static_cast<std::size_t>(grid.blockIndex()) * perBlock + static_cast<std::size_t>(grid.block().rank());
  const std::size_t step = static_cast<std::size_t>(grid.blockCount()) * perBlock;
  for (std::size_t i = first; i < count; i += step) input[i] = value + static_cast<float>(i % 16);
  auto wait = args.wait;
  if (!barrier->sync(grid, wait)) return;
  plan::executeStatic<float, Sum, ConstantTwoShot, rank>(grid, args);
  if (!barrier->sync(grid, wait)) return;
  for (std::size_t i = first; i < count; i += step) output[i] *= 2.0f;
}
/// What it gives, where rank r's value is `value` + r.
inline std::vector<float> doubledSums(std::size_t count, float value) {
  std::vector<float> sums(count);
  for (std::size_t i = 0; i < count; ++i) sums[i] = 2.0f * (2.0f * (value + static_cast<float>(i % 16)) + 1.0f);
  return sums;
}

}  // namespace mscclpp::test
