// 18: a collective of one's own as a plan: an all-gather in a ring, proven when it is compiled, and executed.
#pragma once

#include <string>
#include <vector>

#include "example.hpp"
#include "mscclpp/kernels/executor.hpp"
#include "mscclpp/plan/program.hpp"

namespace example {

using namespace mscclpp;

/// In each step a rank passes on to the next one what it got in the step before.
constexpr plan::Plan ringAllGather(int ranks) {
  plan::Program program({.collective = plan::CollectiveKind::AllGather, .ranks = ranks});
  for (int rank = 0; rank < ranks; ++rank) {
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    auto block = program.block(rank, 0);
    block.copy(plan::input(rank, 0), plan::output(rank, rank));
    block.signal(previous).wait(next);  // the next rank's caller has read its last output
    for (int step = 0; step < ranks - 1; ++step) {
      const int owner = (rank + ranks - step) % ranks;
      block.copy(plan::output(rank, owner), plan::output(next, owner)).signal(next).wait(previous);
    }
  }
  return program.finish();
}

/// Without one of the signals or waits this does not compile: the message has the place and what is wrong there.
constexpr plan::Plan fourRanks() {
  return ringAllGather(4);
}
static_assert(plan::isProven<fourRanks>);

/// For the ranks that there are, proven when it is loaded.
inline ExecutionPlan loadRing(int rank, int ranks) {
  return ExecutionPlan(plan::NamedPlan{ringAllGather(ranks), "ring_all_gather", {}}, rank);
}

inline constexpr std::size_t count = 1000;  // elements of each rank

inline float inputAt(int rank, std::size_t i) {
  return static_cast<float>(rank) * 10000.0f + static_cast<float>(i);
}
inline std::vector<float> inputOf(int rank) {
  std::vector<float> input(count);
  for (std::size_t i = 0; i < count; ++i) input[i] = inputAt(rank, i);
  return input;
}

inline void check(const std::vector<float>& output, int rank, int ranks) {
  for (std::size_t i = 0; i < output.size(); ++i)
    require(output[i] == inputAt(static_cast<int>(i / count), i % count), "element " + std::to_string(i) + " is wrong");
  if (rank == 0) std::printf("a ring of %d ranks gathered %zu elements of each\n", ranks, count);
}

}  // namespace example
