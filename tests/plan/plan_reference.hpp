// What a collective of a plan results in, and inputs with exact sums and products.
#pragma once

#include <random>
#include <vector>

#include "mscclpp/plan/message.hpp"
#include "mscclpp/plan/plan.hpp"
#include "tests/collective/reference.hpp"

namespace mscclpp::plan {

/// Inputs of all ranks: -1, 0 and 1, which any order of the reduction reduces to the same.
template <class T>
std::vector<std::vector<T>> exactInputs(std::size_t count, int ranks, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<T>> inputs(ranks, std::vector<T>(count));
  for (auto& input : inputs)
    for (T& value : input) value = narrow<T>(static_cast<Accumulator<T>>(static_cast<int>(random() % 3) - 1));
  return inputs;
}

/// The outputs of all ranks of an all-reduce or all-gather.
template <class T, class Op>
std::vector<T> expectedOutput(CollectiveKind collective, const std::vector<std::vector<T>>& inputs) {
  if (collective == CollectiveKind::AllReduce) return test::referenceOf<T, Op>(inputs);
  std::vector<T> output;
  for (const auto& input : inputs) output.insert(output.end(), input.begin(), input.end());
  return output;
}

/// Whether two outputs are bitwise the same, where every NaN is like any other.
template <class T>
bool areSame(std::vector<T> a, std::vector<T> b) {
  const auto unify = [](std::vector<T>& values) {
    for (T& value : values)
      if (test::isNan(value)) std::memset(static_cast<void*>(&value), 0x7f, sizeof(T));
  };
  unify(a);
  unify(b);
  return test::firstDifference(a, b) == -1;
}

}  // namespace mscclpp::plan
