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
  // A tile for one warp, since a lane is a thread.
  using Layer =
      example::Layer<ranks, GemmShape{.rows = 16, .columns = 32, .depth = 16, .warpRows = 1, .warpColumns = 1}>;
  const example::Problem problem{.tokens = 21, .width = 136, .depth = 40};
  const auto scratch = Layer::scratchFor(problem.tokens, problem.width, ranks);
  const emulation::SymmetricBuffers buffers(ranks, scratch.windowBytes(), Layer::Scratch::initialByte);
  std::vector<std::vector<std::uint64_t>> epochs(ranks,
                                                 std::vector<std::uint64_t>(epochWords, Layer::Scratch::firstEpoch));
  std::vector<std::vector<bf16>> hidden(ranks), outputs(ranks), inputs, weights;
  const auto gain = problem.gain(), residual = problem.residual();
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(problem.input(rank));
    weights.push_back(problem.weight(rank));
    hidden[rank].resize(residual.size());
    outputs[rank].resize(residual.size());
  }
  for (int call = 0; call < 3; ++call) {
    const emulation::Shape shape{
        .ranks = ranks, .blocks = 1, .threads = Layer::maxBlockThreads, .sharedBytes = Layer::sharedBytes({}, {})};
    emulation::launch<32>(shape, [&](int rank, const auto& grid) {
      const Layer::Args args{.team = {rank, ranks},
                             .window = buffers.window<ranks>(),
                             .epochs = {epochs[rank].data()},
                             .scratch = scratch,
                             .count = problem.tokens,
                             .wait = {nullptr, 20'000'000'000}};
      const example::LayerArrays arrays{inputs[rank].data(), weights[rank].data(), gain.data(),
                                        residual.data(),     hidden[rank].data(),  outputs[rank].data()};
      Layer::run(grid, args, arrays.operands(problem.tokens, problem.width, problem.depth),
                 arrays.result(problem.width));
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
