// A rank that is killed in each of the compiled collectives on GPUs, one process and GPU per rank.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "checked_calls.cuh"
#include "gpu_rank.cuh"
#include "killed_rank.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/collectives.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr std::size_t shortCount = 1000;
constexpr std::size_t longCount = 4'000'000;

/// The calls of all collectives in which the last of `ranks` ranks is killed.
std::vector<KilledCall> killedCalls(int ranks) {
  std::vector<KilledCall> calls;
  for (const CollectiveType collective : everyCollective) {
    for (const KilledCall& call : killedCallsOf(collective, ranks - 1, shortCount, longCount)) calls.push_back(call);
  }
  return calls;
}

/// Calls, several at a time, until an error is thrown, which is returned.
std::string errorOf(const GpuRank& rank, Collectives& collectives, CheckedCalls& calls, const CheckedCall& checked) {
  const bool depends = dependsOn(checked, rank.rank, rank.ranks, rank.ranks - 1);
  try {
    while (true) {
      calls.enqueue(checked, false);
      // Throws if a wait has failed or a rank is known to have failed.
      const auto wrong = calls.wrongElements();
      CHECK_MESSAGE(wrong == 0, "a call returned a wrong result");
      CHECK_MESSAGE(!depends, "a call succeeded without the data of the killed rank");
      calls.enqueueNextRound();
    }
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::RemoteError);
    // The kernels must end too.
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(calls.stream()));
    CHECK_THROWS_AS(collectives.check(), Error);
    return error.what();
  }
}

}  // namespace

TEST_CASE("a rank killed in any collective is named to all others, and no call returns a wrong result") {
  const std::size_t calls = killedCalls(gpus()).size();
  for (std::size_t i = 0; i < calls; ++i) {
    const std::vector<std::string> variables(static_cast<std::size_t>(gpus()),
                                             "MSCCLPP_TEST_KILLED_CALL=" + std::to_string(i));
    INFO(describe(killedCalls(gpus())[i].checked));
    runAsProcesses(gpus(), "a rank of a call in which one is killed", std::chrono::seconds(timeoutSeconds), gpus() - 1,
                   variables);
  }
}
TEST_CASE("a rank of a call in which one is killed" * doctest::skip()) {
  const char* index = std::getenv("MSCCLPP_TEST_KILLED_CALL");
  REQUIRE(index != nullptr);
  GpuRank rank;
  const int killed = rank.ranks - 1;
  const KilledCall call = killedCalls(rank.ranks).at(std::strtoul(index, nullptr, 10));
  const std::string what = describe(call.checked);
  CAPTURE(what);
  Collectives collectives(rank.communicator, DeviceType::GPU);
  CheckedCalls calls(rank, collectives, longCount);
  // The same call once with all ranks, which also loads the kernels.
  calls.enqueue(call.checked, false);
  CHECK(calls.wrongElements() == 0);
  calls.enqueueNextRound();
  // Over the sockets of the test program, which detect no failures: all ranks have left the call.
  rank.sockets->barrier();
  if (rank.rank == killed) {
    if (call.othersWait) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::raise(SIGKILL);
  }
  const auto start = std::chrono::steady_clock::now();
  const std::string error = errorOf(rank, collectives, calls, call.checked);
  const double seconds = secondsSince(start);
  CHECK(seconds < 5);
  CHECK_MESSAGE(error.find("rank " + std::to_string(killed) + " failed") != std::string::npos, error);
  rank.report(what + ": the killed rank was named after " + std::to_string(seconds) + " s");
  // Ranks that exit are failed ranks to others: let all find the killed one first.
  std::this_thread::sleep_for(std::chrono::seconds(1));
}
