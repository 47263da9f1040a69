// 15 on CPU ranks: processes.
#include <algorithm>
#include <cstdio>

#include "mscclpp/host/communicator/communicator.hpp"
#include "problem.hpp"

using namespace mscclpp;

namespace {

void runLayer(ProcessGroup& group) {
  const int rank = group.rank();
  const example::Problem problem{.ranks = group.size(), .experts = 3 * group.size(), .tokens = 20, .hidden = 64};
  Communicator communicator(group.connect());
  moe::Buffer buffer(communicator, DeviceType::CPU,
                     {.maxTokens = problem.tokens,
                      .maxLowLatencyTokens = problem.tokens,
                      .topk = example::Problem::topk,
                      .experts = problem.experts,
                      .hidden = problem.hidden});

  const auto rows = problem.rows(rank);
  const auto experts = problem.chosen(rank);
  const auto weights = problem.weights(rank);
  const moe::Tokens tokens{rows.data(), nullptr, experts.data(), weights.data(), problem.tokensOf(rank)};
  const std::uint32_t capacity = std::max(buffer.largestCapacity(), buffer.lowLatencyCapacity());
  std::vector<bf16> received(std::size_t{capacity} * problem.hidden), output(rows.size());
  std::vector<std::uint32_t> counts(3), offsets(4);
  const moe::ExpertBatch batch{received.data(), nullptr, counts.data(), offsets.data(), nullptr, capacity};
  moe::DispatchHandle handle = buffer.makeHandle();
  for (int call = 0; call < 4; ++call) {
    const bool isLowLatency = call % 2 == 0;
    if (isLowLatency) {
      const auto receive = buffer.lowLatencyDispatch(tokens, batch, handle, nullptr, true);
      receive();  // what is between the two runs while the rows travel
    } else {
      buffer.dispatch(tokens, batch, handle);
    }
    for (int expert = 0; expert < 3; ++expert) {
      const float factor = example::factorOf(rank * 3 + expert);
      const std::size_t first = std::size_t{offsets[static_cast<std::size_t>(expert)]} * problem.hidden;
      const std::size_t count = std::size_t{counts[static_cast<std::size_t>(expert)]} * problem.hidden;
      for (std::size_t i = first; i < first + count; ++i) received[i] = narrow<bf16>(factor * widen<bf16>(received[i]));
    }
    output.assign(output.size(), narrow<bf16>(-7.0f));
    if (isLowLatency) {
      buffer.lowLatencyCombine(received.data(), output.data(), handle);
    } else {
      buffer.combine(received.data(), output.data(), handle);
    }
    problem.check(rank, output);
  }
  if (rank == 0) std::printf("tokens to %d experts on %d CPU ranks and back: right\n", problem.experts, problem.ranks);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnRanks(4, argc, argv, runLayer);
}
