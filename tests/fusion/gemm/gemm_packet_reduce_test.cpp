// GEMMs that are reduced in packets, on emulated threads.
#include "gemm_packet_reduce_cases.hpp"
#include "mscclpp/emulation/wait_monitor.hpp"

namespace mscclpp::test {

// Rank 0 reduces all packs of the product and waits in vain for rank 2; rank 1 has more patience.
TEST_CASE("GEMM and all-reduce in packets: a rank whose wait has failed sends no result") {
  using C = SmallPacketGemm<bf16, RowDelivery::ToAll>;
  constexpr int ranks = 3, absent = 2;
  constexpr std::size_t rows = 8, width = 32, depth = 16;  // as many packs as a warp has lanes
  const auto layout = C::scratchFor(rows, width, ranks);
  const emulation::SymmetricBuffers scratch(ranks, layout.windowBytes(), C::Scratch::initialByte);
  const std::vector<bf16> input(rows * depth), weight(width * depth);
  std::vector<std::vector<bf16>> outputs(ranks, std::vector<bf16>(rows * width));
  std::vector<std::uint64_t> epochs(ranks * epochWords, C::Scratch::firstEpoch);
  emulation::WaitMonitor monitors[ranks];
  constexpr std::uint64_t timeouts[ranks] = {100'000'000, 1'000'000'000, 0};
  emulation::launch<32>({.ranks = ranks, .threads = C::maxBlockThreads, .sharedBytes = C::sharedBytes({}, {})},
                        [&](int rank, const auto& grid) {
                          if (rank == absent) return;
                          const typename C::Args args{
                              .team = Team<>(rank, ranks),
                              .window = scratch.window(),
                              .epochs = {&epochs[static_cast<std::size_t>(rank) * epochWords]},
                              .scratch = layout,
                              .count = rows,
                              .wait = BoundedWait(monitors[rank].deviceControl(), timeouts[rank])};
                          const GemmOperands<bf16, KeepPairs<bf16>> operands{
                              makeMatrix(input.data(), rows, depth), makeMatrix(weight.data(), width, depth), {}};
                          auto& output = outputs[static_cast<std::size_t>(rank)];
                          C::run(grid, args, operands, StoreRows<bf16>{makeMatrix(output.data(), rows, width)});
                        });
  for (const int rank : {0, 1}) {
    CAPTURE(rank);
    CHECK_THROWS_AS(monitors[rank].check(), emulation::FailedWait);
  }
}

}  // namespace mscclpp::test
