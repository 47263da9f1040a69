// The pipelined all-reduce on emulated threads.

// Checked calls begin together, which would hide what these cases look for.
#define MSCCLPP_CHECKED 0

#include <atomic>
#include <thread>
#include <vector>

#include "all_reduce_pipelined_cases.hpp"
#include "mscclpp/emulation/launch.hpp"
#include "mscclpp/emulation/symmetric_buffers.hpp"

using namespace mscclpp;

namespace {

/// Rank 2 arrives after rank 0 has timed out waiting for it, in one lane of its block; the other ranks wait far longer.
/// A rank without a failed wait must have the correct result: a block with a failed wait in any lane publishes nothing.
template <int lookahead>
void checkFailedWaitDoesNotPropagate(int warps) {
  CAPTURE(lookahead);
  CAPTURE(warps);
  constexpr int ranks = 3;
  constexpr int width = 4;
  constexpr std::size_t count = 90;
  using Collective = AllReduce<float, Sum, AllReduceConfig{Protocol::Simple, Pattern::TwoShot, 0, lookahead}>;
  const auto scratch = Collective::scratchFor(0, ranks, {.tilePacks = 8, .blocks = 1, .slots = 2 * lookahead});
  const emulation::SymmetricBuffers buffers(ranks, scratch.windowBytes(), Collective::Scratch::initialByte);
  std::vector<std::vector<std::uint64_t>> epochs(ranks, std::vector<std::uint64_t>(epochWords, 0));
  const std::vector<float> input(count, 1.0f);
  std::vector<std::vector<float>> outputs(ranks, std::vector<float>(count, -7.0f));
  std::vector<WaitControl> controls(ranks);
  emulation::launch<width>({.ranks = ranks, .blocks = 1, .threads = width * warps}, [&](int rank, const auto& grid) {
    const auto r = static_cast<std::size_t>(rank);
    if (rank == 2) {
      while (std::atomic_ref(controls[0].expired).load() == 0) std::this_thread::yield();
    }
    const typename Collective::Args args{.team = {rank, ranks},
                                         .window = buffers.window(),
                                         .epochs = {epochs[r].data()},
                                         .scratch = scratch,
                                         .count = count,
                                         .wait = {&controls[r], rank == 0 ? 50'000'000u : 1'000'000'000u}};
    Collective::run(grid, args, ArraySource<float>(input.data()), ArraySink<float>(outputs[r].data()));
  });
  CHECK(controls[0].expired != 0);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    if (controls[rank].expired == 0) CHECK(outputs[rank] == std::vector<float>(count, 3.0f));
  }
}

}  // namespace

TEST_CASE("pipeline: a rank whose wait failed in one lane sends no wrong result") {
  for (const int warps : {1, 3}) {
    checkFailedWaitDoesNotPropagate<1>(warps);
    checkFailedWaitDoesNotPropagate<2>(warps);
  }
}
