// One-sided messages of CPU ranks: threads, processes, wrong calls and failures.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>

#include "tests/host/ranks.hpp"
#include "tests/nccl/cpu_client.hpp"
#include "tests/nccl/one_sided_cases.hpp"

using namespace mscclpp::test;

namespace {

using CpuRank = Client<CpuClient>;

std::string lastError() {
  return ncclGetLastError(nullptr);
}

}  // namespace

TEST_CASE("puts, signals and waits") {
  for (const int ranks : {1, 2, 3, 8}) {
    CAPTURE(ranks);
    onRanks<CpuClient>(ranks, [](CpuRank& c) { checkOneSided(c); });
  }
}

TEST_CASE("ranks that are processes, and parts of a communicator") {
  ncclUniqueId id;
  require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const Outcomes outcomes = onProcesses(4, [&](int rank) {
    ncclComm_t comm = nullptr, half = nullptr;
    require(ncclCommInitRank(&comm, 4, id, rank), "ncclCommInitRank");
    CpuRank c{rank, 4, comm, {}};
    checkOneSided(c);
    require(ncclCommSplit(comm, rank / 2, 0, &half, nullptr), "ncclCommSplit");
    CpuRank ofHalf{rank % 2, 2, half, {}};
    checkOneSided(ofHalf);
    checkSum(c, comm, "the parent");
    require(ncclCommDestroy(half), "ncclCommDestroy");
    require(ncclCommDestroy(comm), "ncclCommDestroy");
  });
  for (const auto& outcome : outcomes) CHECK(outcome == "");
}

TEST_CASE("one thread has all ranks") {
  std::vector<ncclComm_t> comms(2);
  require(ncclCommInitAll(comms.data(), 2, nullptr), "ncclCommInitAll");
  std::vector<void*> memory(2);
  std::vector<ncclWindow_t> windows(2);
  for (void*& each : memory) require(ncclMemAlloc(&each, 8), "ncclMemAlloc");
  require(ncclGroupStart(), "ncclGroupStart");
  for (std::size_t i = 0; i < 2; ++i) {
    require(ncclCommWindowRegister(comms[i], memory[i], 8, &windows[i], 0), "ncclCommWindowRegister");
  }
  require(ncclGroupEnd(), "ncclGroupEnd");
  const std::array<std::int32_t, 2> values{7, 8};
  require(ncclGroupStart(), "ncclGroupStart");
  for (int rank = 0; rank < 2; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    ncclWaitSignalDesc_t arrival{1, 1 - rank, 0, 0};
    if (rank == 0) require(ncclWaitSignal(1, &arrival, comms[i], nullptr), "ncclWaitSignal");
    require(ncclPutSignal(&values[i], 1, ncclInt32, 1 - rank, windows[i], 4, 0, 0, 0, comms[i], nullptr), "put");
    if (rank == 1) require(ncclWaitSignal(1, &arrival, comms[i], nullptr), "ncclWaitSignal");
  }
  CHECK(static_cast<std::int32_t*>(memory[0])[1] == 0);  // nothing is done before the group ends
  require(ncclGroupEnd(), "ncclGroupEnd");
  CHECK(static_cast<std::int32_t*>(memory[0])[1] == 8);
  CHECK(static_cast<std::int32_t*>(memory[1])[1] == 7);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(ncclCommWindowDeregister(comms[i], windows[i]) == ncclSuccess);
    CHECK(ncclCommDestroy(comms[i]) == ncclSuccess);
  }
  for (void* each : memory) CHECK(ncclMemFree(each) == ncclSuccess);
}

TEST_CASE("a wrong call is refused at once, and nothing of its group is done") {
  ncclComm_t comm = nullptr;
  require(ncclCommInitAll(&comm, 1, nullptr), "ncclCommInitAll");
  void* memory = nullptr;
  require(ncclMemAlloc(&memory, 8), "ncclMemAlloc");
  auto* const words = static_cast<std::int32_t*>(memory);
  std::array<std::int32_t, 2> unmappable{};
  ncclWindow_t window = nullptr, local = nullptr;
  CHECK(ncclSignal(0, 0, 0, 0, comm, nullptr) == ncclInvalidUsage);
  CHECK(lastError().find("the communicator has no window") != std::string::npos);
  require(ncclCommWindowRegister(comm, memory, 8, &window, 0), "ncclCommWindowRegister");
  require(ncclCommWindowRegister(comm, unmappable.data(), 8, &local, 0), "ncclCommWindowRegister");
  const std::int32_t value = 5;
  const auto put = [&](std::size_t count, int peer, ncclWindow_t to, std::size_t offset, int index = 0, int ctx = 0,
                       unsigned int flags = 0) {
    return ncclPutSignal(&value, count, ncclInt32, peer, to, offset, index, ctx, flags, comm, nullptr);
  };
  const auto wait = [&](ncclWaitSignalDesc_t awaited) { return ncclWaitSignal(1, &awaited, comm, nullptr); };
  CHECK(put(1, 1, window, 0) == ncclInvalidArgument);
  CHECK(put(1, -1, window, 0) == ncclInvalidArgument);
  CHECK(put(1, 0, window, 5) == ncclInvalidArgument);
  CHECK(lastError().find("4 bytes at offset 5 do not lie in the window of rank 0, which has 8") != std::string::npos);
  CHECK(put(1, 0, window, ~std::size_t{0}) == ncclInvalidArgument);
  CHECK(put(~std::size_t{0} / 2, 0, window, 0) == ncclInvalidArgument);
  CHECK(put(0, 0, window, 9) == ncclInvalidArgument);
  CHECK(put(1, 0, nullptr, 0) == ncclInvalidArgument);
  CHECK(put(1, 0, local, 0) == ncclInvalidUsage);
  CHECK(lastError().find("ncclMemAlloc") != std::string::npos);
  CHECK(put(1, 0, window, 0, 16) == ncclInvalidArgument);
  CHECK(lastError().find("numRmaSig") != std::string::npos);
  CHECK(put(1, 0, window, 0, 0, 4) == ncclInvalidArgument);
  CHECK(put(1, 0, window, 0, 0, 0, 1) == ncclInvalidArgument);
  CHECK(ncclPutSignal(nullptr, 1, ncclInt32, 0, window, 0, 0, 0, 0, comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclSignal(0, -1, 0, 0, comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclSignal(0, 0, 0, 0, nullptr, nullptr) == ncclInvalidArgument);
  CHECK(wait({-1, 0, 0, 0}) == ncclInvalidArgument);
  CHECK(wait({1, 1, 0, 0}) == ncclInvalidArgument);
  CHECK(ncclWaitSignal(-1, nullptr, comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclWaitSignal(1, nullptr, comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(put(1, 0, window, 0) == ncclSuccess);
  CHECK(put(1, 7, window, 0) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  CHECK(words[0] == 0);
  CHECK(put(1, 0, window, 4) == ncclSuccess);
  CHECK(wait({1, 0, 0, 0}) == ncclSuccess);
  CHECK(words[0] == 0);
  CHECK(words[1] == 5);
  for (const ncclWindow_t each : {window, local}) CHECK(ncclCommWindowDeregister(comm, each) == ncclSuccess);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  CHECK(ncclMemFree(memory) == ncclSuccess);
}

TEST_CASE("an abort ends a wait for a signal") {
  std::vector<ncclComm_t> comms(2);
  require(ncclCommInitAll(comms.data(), 2, nullptr), "ncclCommInitAll");
  require(ncclGroupStart(), "ncclGroupStart");
  std::array<ncclWindow_t, 2> windows{};
  std::array<std::int32_t, 2> memory{};
  for (std::size_t i = 0; i < 2; ++i) {
    require(ncclCommWindowRegister(comms[i], &memory[i], 4, &windows[i], 0), "ncclCommWindowRegister");
  }
  require(ncclGroupEnd(), "ncclGroupEnd");
  std::atomic<ncclResult_t> result = ncclSuccess;
  std::thread waiting([&] {
    ncclWaitSignalDesc_t never{1, 1, 0, 0};
    result = ncclWaitSignal(1, &never, comms[0], nullptr);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const auto start = std::chrono::steady_clock::now();
  CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
  waiting.join();
  CHECK(secondsSince(start) < soon);
  CHECK(result != ncclSuccess);
  CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
}

TEST_CASE("a killed rank ends the waits for its signals") {
  ncclUniqueId id;
  require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  std::vector<ChildProcess> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.emplace_back([&, rank] {
      ncclComm_t comm = nullptr;
      require(ncclCommInitRank(&comm, 2, id, rank), "ncclCommInitRank");
      std::int32_t memory = 0;
      ncclWindow_t window = nullptr;
      require(ncclCommWindowRegister(comm, &memory, 4, &window, 0), "ncclCommWindowRegister");
      ncclWaitSignalDesc_t fromPeer{1, 1 - rank, 0, 0};
      require(ncclSignal(1 - rank, 0, 0, 0, comm, nullptr), "ncclSignal");
      require(ncclWaitSignal(1, &fromPeer, comm, nullptr), "ncclWaitSignal");
      // Once the other has received its signal.
      if (rank == 1) {
        require(ncclWaitSignal(1, &fromPeer, comm, nullptr), "ncclWaitSignal");
        ::raise(SIGKILL);
      }
      require(ncclSignal(1, 0, 0, 0, comm, nullptr), "ncclSignal");
      if (ncclWaitSignal(1, &fromPeer, comm, nullptr) != ncclRemoteError)
        throw std::runtime_error("a wait for a killed rank must fail with ncclRemoteError");
      if (ncclSignal(0, 0, 0, 0, comm, nullptr) != ncclRemoteError)
        throw std::runtime_error("a signal after a failure must fail");
      ncclResult_t failure = ncclSuccess;
      require(ncclCommGetAsyncError(comm, &failure), "ncclCommGetAsyncError");
      if (failure != ncclRemoteError) throw std::runtime_error("the asynchronous error");
      require(ncclCommAbort(comm), "ncclCommAbort");
    });
  }
  CHECK(children[1].wait() == "signal 9");
  CHECK(children[0].wait() == "");
}
