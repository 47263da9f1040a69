// The reference of a reduction, and inputs with special values.
#pragma once

#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/packet/sentinel.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

template <class T>
bool isNan(T value) {
  const auto wide = widen<T>(value);
  return wide != wide;
}

/// The run-time value of an operator.
template <class Op>
inline constexpr ReduceOp valueOf = std::is_same_v<Op, Product>   ? ReduceOp::PROD
                                    : std::is_same_v<Op, Min>     ? ReduceOp::MIN
                                    : std::is_same_v<Op, Max>     ? ReduceOp::MAX
                                    : std::is_same_v<Op, Average> ? ReduceOp::AVG
                                                                  : ReduceOp::SUM;

/// Calls f.operator()<Op>() for every operator.
template <class F>
void forEachOperator(const F& f) {
  f.template operator()<Sum>();
  f.template operator()<Product>();
  f.template operator()<Min>();
  f.template operator()<Max>();
  f.template operator()<Average>();
}

/// The reduction as specified: in rank order from 0, in the accumulator type, rounded once.
template <class T, class Op>
std::vector<T> referenceOf(const std::vector<std::vector<T>>& inputs) {
  std::vector<T> results(inputs[0].size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    Accumulator<T> total = widen<T>(inputs[0][i]);
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) total = Op::combine(total, widen<T>(inputs[rank][i]));
    results[i] = narrow<T>(Op::finish(total, static_cast<int>(inputs.size())));
  }
  return results;
}

/// Inputs of all ranks for one message. They include zeros of both signs, NaN, infinities, and packs equal to the
/// poison of the sentinel protocol, in inputs and in results.
template <class T>
std::vector<std::vector<T>> inputsOf(std::size_t count, int ranks, unsigned seed) {
  std::vector<std::vector<T>> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(randomElements<T>(count, seed * 64 + static_cast<unsigned>(rank)));
  }
  constexpr std::size_t half = 8 / sizeof(T);
  std::mt19937_64 random(seed);
  for (std::size_t first = 0; first + half <= count; first += half) {
    const auto kind = random() % 16;
    const auto poisoned = random() % static_cast<std::uint64_t>(ranks);
    for (std::size_t rank = 0; rank < inputs.size() && kind < 4; ++rank) {
      const bool poison = kind < 2 ? rank == poisoned : rank == 0;
      // Poison plus zeros is poison, so the result must be escaped too.
      if (poison || kind >= 2)
        std::memset(static_cast<void*>(&inputs[rank][first]), poison ? Sentinel::initialByte : 0, 8);
    }
  }
  return inputs;
}

}  // namespace mscclpp::test
