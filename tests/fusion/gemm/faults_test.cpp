// A rank that is killed in the middle of a fused GEMM: the kernels of the others end soon, and the host names it. The
// ranks are processes whose threads emulate a GPU.
#include <doctest/doctest.h>

#include <csignal>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gemm_tester.hpp"
#include "mscclpp/emulation/launch.hpp"
#include "mscclpp/fusion/gemm/all_gather_gemm.hpp"
#include "mscclpp/fusion/gemm/gemm_packet_reduce.hpp"
#include "mscclpp/fusion/gemm/gemm_reduce.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "tests/host/ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr int ranks = 3;
constexpr int killed = 2;
constexpr std::size_t allRows = 96, width = 64, depth = 32;
constexpr int callsBefore = 2;  ///< that all ranks complete

/// Kills its process in the tiles from row `fatalRow` on.
struct FatalPairs : KeepPairs<bf16> {
  std::size_t fatalRow;
  Vector<bf16, 2> operator()(std::size_t row, std::size_t column, float first, float second) const {
    if (row >= fatalRow) std::raise(SIGKILL);
    return KeepPairs<bf16>::operator()(row, column, first, second);
  }
};

/// The last calls of a rank: an error that names the killed one, soon, and again after a later call. mostRight: calls
/// that may succeed before, since the killed rank had sent all that they need.
template <class Call, class Check>
void expectKilledRankNamed(int mostRight, const Call& call, const Check& check) {
  const auto start = std::chrono::steady_clock::now();
  int succeeded = 0;
  for (int failed = 0; failed < 2;) {
    call();
    try {
      check();
    } catch (const Error& error) {
      const std::string text = error.what();
      if (error.getErrorCode() != ErrorCode::RemoteError || text.find("rank 2 failed") == std::string::npos) {
        throw std::runtime_error("another error: " + text);
      }
      ++failed;
      continue;
    }
    if (failed > 0 || ++succeeded > mostRight) throw std::runtime_error("a call without the killed rank succeeded");
  }
  const double seconds = secondsSince(start);
  if (seconds > soon) throw std::runtime_error("the kernels ended after " + std::to_string(seconds) + " s");
}

/// One rank. C: a GemmReduce or an AllGatherGemm. resultOf(output): its last argument.
template <class C, class ResultOf>
void runRank(int rank, const std::string& address, std::size_t inputRows, const typename C::Scratch& scratch,
             const ResultOf& resultOf) {
  auto bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
  bootstrap->initialize(address);
  Communicator communicator(bootstrap);
  const CollectiveState<C> state(communicator, DeviceType::CPU, scratch, allRows);
  const auto seed = static_cast<unsigned>(rank);
  const auto input = randomMatrix<bf16>(inputRows, depth, depth, seed);
  const auto weight = randomMatrix<bf16>(width, depth, depth, seed + 10);
  std::vector<bf16> output(allRows * width);
  const auto args = state.args(allRows);
  std::size_t fatalRow = allRows;
  const auto call = [&] {
    const GemmOperands<bf16, FatalPairs> operands{
        makeMatrix(input.data.data(), inputRows, depth), makeMatrix(weight.data.data(), width, depth), {{}, fatalRow}};
    emulation::launch<32>({.threads = C::maxBlockThreads, .sharedBytes = C::sharedBytes(args, {})},
                          [&](int, const auto& grid) { C::run(grid, args, operands, resultOf(output.data())); });
  };
  for (int i = 0; i < callsBefore; ++i) {
    call();
    state.check();
  }
  bootstrap->barrier();
  if (rank == killed) {
    fatalRow = allRows / 2;
    call();
    throw std::runtime_error("the rank survived");
  }
  const bool gathers = inputRows < allRows;
  expectKilledRankNamed(gathers ? 1 : 0, call, [&] { state.check(); });
}

template <class C, class ResultOf>
void killInKernel(std::size_t inputRows, const typename C::Scratch& scratch, const ResultOf& resultOf) {
  const std::string address = "127.0.0.1:" + std::to_string(freePort());
  const Reports ended, mayExit;
  std::vector<ChildProcess> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.emplace_back([&, rank] {
      std::string problem;
      try {
        runRank<C>(rank, address, inputRows, scratch, resultOf);
      } catch (const std::exception& error) {
        problem = error.what();
      }
      ended.add();
      mayExit.wait(1);  // a rank that exits would be another failed rank
      if (!problem.empty()) throw std::runtime_error(problem);
    });
  }
  ended.wait(ranks - 1);
  processes[killed].kill(SIGKILL);  // had it not killed itself
  for (int rank = 0; rank < ranks - 1; ++rank) mayExit.add();
  CHECK(processes[0].wait() == "");
  CHECK(processes[1].wait() == "");
  CHECK(processes[killed].wait() == "signal 9");
}

template <RowDelivery delivery>
void killInReduction() {
  using C = GemmReduce<bf16, GemmReduceConfig{.delivery = delivery, .tile = smallTile, .reducerWarps = 1}>;
  killInKernel<C>(allRows, C::scratchFor(allRows, width, ranks),
                  [](bf16* output) { return StoreRows<bf16>{makeMatrix(output, allRows, width)}; });
}
template <RowDelivery delivery>
void killInPackets() {
  using C = GemmPacketReduce<bf16, GemmPacketReduceConfig{.delivery = delivery, .tile = smallTile}>;
  killInKernel<C>(allRows, C::scratchFor(allRows, width, ranks),
                  [](bf16* output) { return StoreRows<bf16>{makeMatrix(output, allRows, width)}; });
}

}  // namespace

TEST_CASE("a rank killed in a GEMM and reduce-scatter is named") {
  killInReduction<RowDelivery::ToOwner>();
}
TEST_CASE("a rank killed in a GEMM and all-reduce in two hops is named") {
  killInReduction<RowDelivery::ToAll>();
}
TEST_CASE("a rank killed in a GEMM and all-reduce in one hop is named") {
  killInReduction<RowDelivery::Redundant>();
}
TEST_CASE("a rank killed in a GEMM and all-reduce in packets is named") {
  killInPackets<RowDelivery::Redundant>();
  killInPackets<RowDelivery::ToAll>();
}
TEST_CASE("a rank killed in a GEMM and reduce-scatter in packets is named") {
  killInPackets<RowDelivery::ToOwner>();
}
TEST_CASE("a rank killed in an all-gather and GEMM is named") {
  using C = AllGatherGemm<bf16, AllGatherGemmConfig{.tile = smallTile, .senderWarps = 1}>;
  killInKernel<C>(allRows / ranks, C::scratchFor(allRows, depth, ranks),
                  [](bf16* output) { return makeMatrix(output, allRows, width); });
}
