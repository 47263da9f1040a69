// Checked calls of GEMMs with a collective inside, on emulated threads: ranks with different numbers of rows learn of
// it.
#define MSCCLPP_CHECKED 1

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "gemm_tester.hpp"
#include "mscclpp/basic/wait_error.hpp"
#include "mscclpp/fusion/gemm/all_gather_gemm.hpp"
#include "mscclpp/fusion/gemm/gemm_packet_reduce.hpp"
#include "mscclpp/fusion/gemm/gemm_reduce.hpp"

namespace mscclpp::test {

namespace {

constexpr int ranks = 2;
constexpr std::size_t mostRows = 48, columns = 32;  // width and depth

template <class C>
constexpr bool gathers = requires {
  C::Scratch::scalesPerRow;
};

/// Two calls of C; the matrices of a rank are zeros, and its output is behind them.
template <class C>
struct Calls {
  Window<> scratch, epochs, matrices;
  typename C::Scratch layout;
  std::size_t rows[ranks];
  BoundedWait wait;

  static auto resultIn(const Matrix<bf16>& output) {
    if constexpr (gathers<C>) {
      return output;
    } else {
      return StoreRows<bf16>{output};
    }
  }

  template <class GridType>
  void operator()(int rank, const GridType& grid) const {
    typename C::Args args{.team = Team<>(rank, ranks),
                          .window = scratch,
                          .epochs = {reinterpret_cast<std::uint64_t*>(epochs.at(rank))},
                          .scratch = layout,
                          .count = rows[rank],
                          .wait = wait};
    auto* const zeros = reinterpret_cast<bf16*>(matrices.at(rank));
    const std::size_t inputRows = gathers<C> ? C::sliceRows(args.count, ranks) : args.count;
    const GemmOperands<bf16, KeepPairs<bf16>> operands{
        {zeros, inputRows, columns, columns}, {zeros, columns, columns, columns}, {}};
    const Matrix<bf16> output = makeMatrix(zeros + mostRows * columns, mostRows, columns);
    for (int call = 0; call < 2; ++call) {
      if (!C::run(grid, args, operands, resultIn(output))) return;
      grid.block().sync();  // one block: all of the call has ended
    }
  }
};

struct Outcome {
  std::optional<WaitRecord> record;
  bool outputIsWritten;  ///< of rank 0
};

template <class C>
Outcome run(std::size_t rowsOfRank0, std::size_t rowsOfRank1) {
  Backend<32> backend;
  const auto layout = C::scratchFor(mostRows, columns, ranks);
  auto scratch = backend.allocate(ranks, layout.windowBytes(), C::Scratch::initialByte);
  auto epochs = backend.allocate(ranks, epochWords * sizeof(std::uint64_t), 0);
  setEpochs(epochs, ranks, C::Scratch::firstEpoch);
  auto matrices = backend.allocate(ranks, 2 * mostRows * columns * sizeof(bf16), 0);
  const std::vector<bf16> before(mostRows * columns, narrow<bf16>(1.0f));
  for (int rank = 0; rank < ranks; ++rank) matrices.write(rank, before, mostRows * columns * sizeof(bf16));
  const Calls<C> calls{scratch.window(),           epochs.window(),          matrices.window(), layout,
                       {rowsOfRank0, rowsOfRank1}, backend.wait(waitTimeout)};
  Outcome outcome{};
  try {
    outcome.record = backend.run({ranks, 1, C::maxBlockThreads / 32, C::sharedBytes({}, {})}, calls);
  } catch (const InvalidCall& call) {
    outcome.record = call.record();
  }
  const auto after = matrices.template read<bf16>(0);
  outcome.outputIsWritten = widen<bf16>(after[mostRows * columns]) == 0.0f;
  return outcome;
}

template <class C>
void checkCalls() {
  const Outcome right = run<C>(40, 40);
  CHECK_FALSE(right.record);
  CHECK(right.outputIsWritten);
  const Outcome wrong = run<C>(40, 42);
  REQUIRE(wrong.record);
  CHECK(sentenceOf(*wrong.record).find("all ranks must pass the same count") != std::string::npos);
  CHECK_FALSE(wrong.outputIsWritten);
}

template <RowDelivery delivery>
using Reduce = GemmReduce<bf16, GemmReduceConfig{.delivery = delivery, .tile = smallTile, .reducerWarps = 1}>;
template <RowDelivery delivery>
using PacketReduce = GemmPacketReduce<bf16, GemmPacketReduceConfig{.delivery = delivery, .tile = smallTile}>;

}  // namespace

TEST_CASE("ranks with different rows of a GEMM that is reduced") {
  checkCalls<Reduce<RowDelivery::ToAll>>();
  checkCalls<Reduce<RowDelivery::ToOwner>>();
  checkCalls<Reduce<RowDelivery::Redundant>>();
}
TEST_CASE("ranks with different rows of a GEMM that is reduced in packets") {
  checkCalls<PacketReduce<RowDelivery::ToAll>>();
  checkCalls<PacketReduce<RowDelivery::ToOwner>>();
}
TEST_CASE("ranks with different rows of a GEMM of gathered rows") {
  checkCalls<AllGatherGemm<bf16, AllGatherGemmConfig{.tile = smallTile, .senderWarps = 1}>>();
}

}  // namespace mscclpp::test
