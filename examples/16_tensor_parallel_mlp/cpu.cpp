// 16 in emulation: threads of this process run as ranks and lanes of warps, the tensor cores too.
#include <cstdio>
#include <vector>

#include "mscclpp/emulation/launch.hpp"
#include "mscclpp/emulation/symmetric_buffers.hpp"
#include "problem.hpp"

using namespace mscclpp;

namespace {

constexpr int ranks = 2;
// A tile for one warp, since a lane is a thread.
using Mlp =
    example::Mlp<GemmShape{.rows = 16, .columns = 32, .depth = 16, .stages = 3, .warpRows = 1, .warpColumns = 1}, 1>;

/// What CollectiveState is on a GPU: the scratch and the epochs of all ranks.
template <class C>
struct State {
  typename C::Scratch scratch;
  emulation::SymmetricBuffers buffers{ranks, scratch.windowBytes(), C::Scratch::initialByte};
  std::vector<std::vector<std::uint64_t>> epochs{ranks, std::vector<std::uint64_t>(epochWords, C::Scratch::firstEpoch)};

  typename C::Args args(int rank, std::size_t count) {
    return {.team = Team<>(rank, ranks),
            .window = buffers.window(),
            .epochs = {epochs[static_cast<std::size_t>(rank)].data()},
            .scratch = scratch,
            .count = count,
            .wait = {nullptr, 20'000'000'000}};
  }
};

/// One launch on every rank: call(rank, grid).
template <class C, class Call>
void launchOnAll(const Call& call) {
  emulation::launch<32>(
      {.ranks = ranks, .blocks = 1, .threads = C::maxBlockThreads, .sharedBytes = C::sharedBytes({}, {})}, call);
}

}  // namespace

int main() try {
  const example::Sizes sizes{.tokens = 37, .hidden = 72, .inner = 56};
  const example::Problem problem{sizes, ranks};
  const auto expected = problem.expected();
  State<Mlp::Up> up{Mlp::Up::scratchFor(sizes.tokens, sizes.hidden, ranks)};
  State<Mlp::Down> down{Mlp::Down::scratchFor(sizes.tokens, sizes.hidden, ranks)};
  std::vector<std::vector<bf16>> inputs, gateUps, downs, residuals, activations(ranks), newResiduals(ranks),
      outputs(ranks);
  const auto gain = problem.gain();
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    inputs.push_back(problem.rowsOf(rank, problem.inputs()));
    residuals.push_back(problem.rowsOf(rank, problem.residuals()));
    gateUps.push_back(problem.gateUp(rank));
    downs.push_back(problem.down(rank));
    activations[r].resize(sizes.tokens * sizes.inner);
    newResiduals[r].resize(inputs[r].size());
    outputs[r].resize(inputs[r].size());
  }
  for (int call = 0; call < 2; ++call) {
    const auto arraysOf = [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      return example::MlpArrays{inputs[r].data(),    gateUps[r].data(),     downs[r].data(),        gain.data(),
                                residuals[r].data(), activations[r].data(), newResiduals[r].data(), outputs[r].data()};
    };
    launchOnAll<Mlp::Up>([&](int rank, const auto& grid) {
      const auto arrays = arraysOf(rank);
      Mlp::Up::run(grid, up.args(rank, sizes.tokens), arrays.upOperands(sizes, problem.tokensOf(rank).size()),
                   arrays.upOutput(sizes));
    });
    launchOnAll<Mlp::Down>([&](int rank, const auto& grid) {
      const auto arrays = arraysOf(rank);
      Mlp::Down::run(grid, down.args(rank, sizes.tokens), arrays.downOperands(sizes), arrays.downResult(sizes));
    });
    for (int rank = 0; rank < ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      problem.check(rank, expected, newResiduals[r], outputs[r]);
    }
  }
  std::printf("feed-forward layer, sequence- and tensor-parallel over %d emulated ranks: right\n", ranks);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
