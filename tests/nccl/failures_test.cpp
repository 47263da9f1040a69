// Aborts of communicators of CPU ranks that share connections.
#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "tests/nccl/cpu_client.hpp"
#include "tests/nccl/failure_cases.hpp"

using namespace mscclpp::test;

namespace {

using CpuRank = Client<CpuClient>;

}  // namespace

TEST_CASE("the abort of a part ends what its peers wait for there, and nothing else") {
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    onRanks<CpuClient>(ranks, [](CpuRank& c) { checkAbortOfPart(c); });
  }
}

TEST_CASE("the abort of a parent leaves its parts alone; ranks are processes") {
  ncclUniqueId id;
  require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const Outcomes outcomes = onProcesses(3, [&](int rank) {
    ncclComm_t parent = nullptr, part = nullptr;
    require(ncclCommInitRank(&parent, 3, id, rank), "ncclCommInitRank");
    CpuRank c{rank, 3, parent, {}};
    checkAbortOfPart(c);
    require(ncclCommSplit(parent, 0, rank, &part, nullptr), "ncclCommSplit");
    if (rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the others wait by then
    } else {
      requireRemoteError(c, parent);
    }
    require(ncclCommAbort(parent), "ncclCommAbort");
    for (int i = 0; i < 3; ++i) checkSum(c, part, "a part of an aborted communicator");
    require(ncclCommDestroy(part), "ncclCommDestroy");
  });
  for (const auto& outcome : outcomes) CHECK(outcome == "");
}

TEST_CASE("the abort of a communicator ends the set-ups that its peers wait in") {
  onRanks<CpuClient>(3, [](CpuRank& c) {
    ncclComm_t part = nullptr, never = nullptr;
    require(ncclCommSplit(c.comm, 0, c.rank, &part, nullptr), "ncclCommSplit");
    if (c.rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the others wait by then
    } else {
      const auto start = std::chrono::steady_clock::now();
      if (ncclCommSplit(part, 0, c.rank, &never, nullptr) != ncclRemoteError)
        throw std::runtime_error("a split with a rank that aborts must fail with ncclRemoteError");
      if (secondsSince(start) > soon) throw std::runtime_error("the abort was noticed too late");
    }
    require(ncclCommAbort(part), "ncclCommAbort");
    checkSum(c, c.comm, "the parent");
  });
}
