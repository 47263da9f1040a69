// 04 in emulation: threads of this process run as ranks, blocks, warps and lanes. Needs no GPU and no host part, and
// works with debuggers and sanitizers: the way to develop a collective.
#include <cstdio>
#include <string>
#include <vector>

#include "all_gather.hpp"
#include "mscclpp/emulation/launch.hpp"
#include "mscclpp/emulation/symmetric_buffers.hpp"
#include "mscclpp/emulation/wait_monitor.hpp"

using namespace mscclpp;

namespace {

template <Protocol protocol>
bool gatherInEmulation(const char* name) {
  using Collective = example::AllGather<float, protocol>;
  // Small and odd: 3 ranks of 2 blocks of 2 warps of 4 lanes.
  constexpr int ranks = 3;
  constexpr int warpWidth = 4;
  const emulation::Shape shape{.ranks = ranks, .blocks = 2, .threads = 2 * warpWidth};
  constexpr std::size_t maxCount = 256;

  using Scratch = typename Collective::Scratch;
  const Scratch scratch = Collective::scratchFor(maxCount, ranks);
  const emulation::SymmetricBuffers buffers(ranks, scratch.windowBytes(), Scratch::initialByte);
  std::vector<std::vector<std::uint64_t>> epochs(ranks, std::vector<std::uint64_t>(epochWords, Scratch::firstEpoch));

  emulation::WaitMonitor monitor;

  for (const std::size_t count : {1, 2, 37, 256, 5, 0, 255, 64}) {
    std::vector<std::vector<float>> inputs(ranks), outputs(ranks, std::vector<float>(ranks * count, -1.0f));
    for (int rank = 0; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < count; ++i) inputs[rank].push_back(example::contribution(rank, i));
    }
    // Returning from launch() corresponds to the end of a kernel on a GPU: calls do not overlap.
    emulation::launch<warpWidth>(shape, [&](int rank, const auto& grid) {
      const typename Collective::Args args{{rank, ranks},
                                           buffers.window(),
                                           {epochs[rank].data()},
                                           scratch,
                                           count,
                                           {monitor.deviceControl(), 20'000'000'000}};
      Collective::run(grid, args, ArraySource<float>(inputs[rank].data()), ArraySink<float>(outputs[rank].data()));
    });
    monitor.check();  // throws what a wait that failed has recorded
    for (int rank = 0; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < ranks * count; ++i) {
        const float expected = example::contribution(static_cast<int>(i / count), i % count);
        if (outputs[rank][i] == expected) continue;
        std::fprintf(stderr, "%s, %zu floats, rank %d: element %zu is %g instead of %g\n", name, count, rank, i,
                     static_cast<double>(outputs[rank][i]), static_cast<double>(expected));
        return false;
      }
    }
  }
  std::printf("all-gather over %d emulated ranks by %s: right\n", ranks, name);
  return true;
}

}  // namespace

int main() {
  const bool right = gatherInEmulation<Protocol::LL16>("LL16") && gatherInEmulation<Protocol::LL8>("LL8") &&
                     gatherInEmulation<Protocol::Sentinel>("sentinel");
  return right ? 0 : 1;
}
