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

}  // namespace mscclpp::test
