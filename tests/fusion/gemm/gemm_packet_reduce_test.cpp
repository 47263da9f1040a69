// GEMMs that are reduced in packets, on emulated threads.

// Checked calls begin together, which would hide what these cases look for.
#define MSCCLPP_CHECKED 0

#include "gemm_packet_reduce_cases.hpp"
#include "mscclpp/emulation/wait_monitor.hpp"

namespace mscclpp::test {

namespace {

/// The records of the ranks of a call that one rank does not make: it has left the job. All know but `uninformed`,
/// whose waits end after a second.
template <RowDelivery delivery, int ranks>
std::vector<WaitRecord> callWithout(int absent, int uninformed = -1) {
  using C = SmallPacketGemm<bf16, delivery>;
  constexpr std::size_t rows = 8, width = 32, depth = 16;  // as many packs as a warp has lanes
  const auto layout = C::scratchFor(rows, width, ranks);
  const emulation::SymmetricBuffers scratch(ranks, layout.windowBytes(), C::Scratch::initialByte);
  const std::vector<bf16> input(rows * depth), weight(width * depth);
  std::vector<std::vector<bf16>> outputs(ranks, std::vector<bf16>(rows * width));
  std::vector<std::uint64_t> epochs(ranks * epochWords, C::Scratch::firstEpoch);
  emulation::WaitMonitor monitors[ranks];
  for (int rank = 0; rank < ranks; ++rank) {
    WaitControl& control = *monitors[rank].deviceControl();
    control.teamIsJob = 1;
    control.leftRanks[0] = 1u << absent;
    control.anyLeft = rank == uninformed ? 0 : 1;
  }
  emulation::launch<32>(
      {.ranks = ranks, .threads = C::maxBlockThreads, .sharedBytes = C::sharedBytes({}, {})},
      [&](int rank, const auto& grid) {
        if (rank == absent) return;
        const auto index = static_cast<std::size_t>(rank);
        const typename C::Args args{
            .team = Team<>(rank, ranks),
            .window = scratch.window(),
            .epochs = {&epochs[index * epochWords]},
            .scratch = layout,
            .count = rows,
            .wait = BoundedWait(monitors[rank].deviceControl(), rank == uninformed ? 1'000'000'000 : waitTimeout)};
        const GemmOperands<bf16, KeepPairs<bf16>> operands{
            makeMatrix(input.data(), rows, depth), makeMatrix(weight.data(), width, depth), {}};
        C::run(grid, args, operands, StoreRows<bf16>{makeMatrix(outputs[index].data(), rows, width)});
      });
  std::vector<WaitRecord> records;
  for (int rank = 0; rank < ranks; ++rank) {
    records.push_back({});
    try {
      monitors[rank].check();
    } catch (const emulation::FailedWait& failed) {
      records.back() = failed.record();
    }
  }
  return records;
}

}  // namespace

// Rank 0 reduces all packs of the product and waits in vain for rank 2; rank 1 waits for its result.
TEST_CASE("GEMM and all-reduce in packets: a rank whose wait has failed sends no result") {
  const auto records = callWithout<RowDelivery::ToAll, 3>(2, 1);
  CHECK(records[0].outcome == WaitOutcome::PeerLeft);
  CHECK(records[0].peer == 2);
  CHECK(records[1].outcome == WaitOutcome::Deadline);
  CHECK(records[1].peer == 0);
}
TEST_CASE("GEMMs in packets: a rank that never calls is named") {
  constexpr int ranks = 6;  // more than are awaited at once
  const auto check = [&](const std::vector<WaitRecord>& records, int absent, int reducing) {
    for (int rank = 0; rank < reducing; ++rank) {
      CAPTURE(rank);
      CAPTURE(absent);
      if (rank == absent) continue;
      CHECK(records[static_cast<std::size_t>(rank)].outcome == WaitOutcome::PeerLeft);
      CHECK(records[static_cast<std::size_t>(rank)].peer == absent);
    }
  };
  for (const int absent : {0, 2, 5}) check(callWithout<RowDelivery::Redundant, ranks>(absent), absent, ranks);
  check(callWithout<RowDelivery::ToOwner, ranks>(3), 3, 4);  // the 8 rows are those of ranks 0 to 3
}

}  // namespace mscclpp::test
