// 12 in emulation: threads of this process run as ranks and lanes of warps, the tensor core too.
#include <cstdio>
#include <cstring>
#include <vector>

#include "mscclpp/emulation/launch.hpp"
#include "mscclpp/emulation/symmetric_buffers.hpp"
#include "problem.hpp"

using namespace mscclpp;

int main() try {
  constexpr int ranks = 2;
  const example::Problem problem{.tokens = 21, .width = 128, .depth = 32};
  const auto scratch = example::scratchFor(problem.tokens, problem.width, ranks);
  const emulation::SymmetricBuffers buffers(ranks, scratch.windowBytes(), example::Scratch::initialByte);
  std::vector<std::vector<std::uint64_t>> epochs(ranks,
                                                 std::vector<std::uint64_t>(epochWords, example::Scratch::firstEpoch));
  std::vector<std::vector<bf16>> hidden(ranks), outputs(ranks), inputs, weights;
  const auto gain = problem.gain(), residual = problem.residual();
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(problem.input(rank));
    weights.push_back(problem.weight(rank));
    hidden[rank].resize(residual.size());
    outputs[rank].resize(residual.size());
  }
  for (int call = 0; call < 3; ++call) {
    emulation::launch<32>({.ranks = ranks, .blocks = 1, .threads = 32}, [&](int rank, const auto& grid) {
      const example::LayerArgs<ranks> args{.team = {rank, ranks},
                                           .window = buffers.window<ranks>(),
                                           .epochs = {epochs[rank].data()},
                                           .scratch = scratch,
                                           .count = problem.tokens,
                                           .wait = {nullptr, 20'000'000'000}};
      const example::Layer layer{problem.tokens,      problem.width,        problem.depth,
                                 inputs[rank].data(), weights[rank].data(), gain.data(),
                                 residual.data(),     hidden[rank].data(),  outputs[rank].data()};
      example::runLayer<256>(grid, args, layer);
    });
    for (int rank = 0; rank < ranks; ++rank) {
      problem.check(outputs[rank], ranks);
      if (std::memcmp(outputs[rank].data(), outputs[0].data(), outputs[0].size() * sizeof(bf16)) != 0) {
        throw std::runtime_error("the ranks have different results");
      }
    }
  }
  std::printf("linear layer by tensor cores, all-reduce, residual and RMSNorm over %d emulated ranks: right\n", ranks);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
