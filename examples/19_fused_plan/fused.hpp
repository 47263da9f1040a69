// 19: a plan that is a constant, inside a kernel of one's own: each rank scales its values, all-reduces them by the
// plan, and takes the square root of the sums, in one launch.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "example.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/kernels/executor.hpp"
#include "mscclpp/plan/program.hpp"
#include "mscclpp/plan/static_role.hpp"

namespace example {

using namespace mscclpp;

inline constexpr int ranks = 2;
inline constexpr std::size_t count = 1000;  // elements
inline constexpr float factor = 0.5f;

/// Both ranks send all they have as packets, and add up what they get.
constexpr plan::Plan oneShot() {
  plan::Program program({.collective = plan::CollectiveKind::AllReduce, .ranks = ranks, .doubleScratch = true});
  for (int rank = 0; rank < ranks; ++rank) {
    const int peer = 1 - rank;
    auto block = program.block(rank, 0);
    block.copy(plan::input(rank, 0), plan::scratch(peer, 0).packets());
    // In the order of ranks, so that both get the same bits.
    const plan::Chunks own = plan::input(rank, 0), other = plan::scratch(rank, 0).packets();
    if (rank == 0) block.reduce({own, other}, {plan::output(rank, 0)});
    if (rank == 1) block.reduce({other, own}, {plan::output(rank, 0)});
  }
  return program.finish();
}
static_assert(plan::isProven<oneShot>);

/// The same as a constant that device code reads.
struct OneShot {
  static constexpr auto value = plan::freeze<oneShot>();
};

/// By all threads of a grid of one block: the plan has one block for each rank.
template <int rank, class Grid>
MSCCLPP_INLINE void scaleReduceRoot(const Grid& grid, const plan::ExecutionArgs& args, const float* values,
                                    float* input, float* output) {
  const auto block = grid.block();
  const auto thread = static_cast<std::size_t>(block.rank()), threads = static_cast<std::size_t>(block.size());
  for (std::size_t i = thread; i < count; i += threads) input[i] = factor * values[i];
  block.sync();  // what the plan reads has been written
  plan::executeStatic<float, Sum, OneShot, rank>(grid, args);
  block.sync();  // the plan has ended
  for (std::size_t i = thread; i < count; i += threads) output[i] = sqrtf(output[i]);
}

/// For the executor, which sets up what the constant needs to run.
inline ExecutionPlan loadOneShot(int rank) {
  return ExecutionPlan(plan::NamedPlan{oneShot(), "one_shot", {}}, rank);
}

inline float valueAt(int rank, std::size_t i) {
  return static_cast<float>(i % 100) * static_cast<float>(rank + 1);
}
inline std::vector<float> valuesOf(int rank) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = valueAt(rank, i);
  return values;
}
inline void check(const std::vector<float>& output, int rank) {
  for (std::size_t i = 0; i < count; ++i) {
    const float expected = std::sqrt(factor * valueAt(0, i) + factor * valueAt(1, i));
    require(std::abs(output[i] - expected) <= 1e-5f * expected, "element " + std::to_string(i) + " is wrong");
  }
  if (rank == 0)
    std::printf("%zu elements scaled, all-reduced by a plan, and their roots taken, in one kernel\n", count);
}

}  // namespace example
