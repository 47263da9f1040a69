// One-sided messages on GPUs, one for each rank; eager and in graphs.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/host/ranks.hpp"
#include "tests/nccl/gpu_client.hpp"
#include "tests/nccl/gpu_graph.hpp"
#include "tests/nccl/one_sided_cases.hpp"

using namespace mscclpp::test;

namespace {

using GpuRank = Client<GpuClient>;

}  // namespace

TEST_CASE("puts, signals and waits") {
  onRanks<GpuClient>(gpuRanks(), [](GpuRank& c) {
    checkOneSided(c);
    checkPuts(c, 3000000, NCCL_WIN_COLL_SYMMETRIC, false);
  });
}

TEST_CASE("graphs replay puts and waits") {
  onRanks<GpuClient>(gpuRanks(), [](GpuRank& c) {
    constexpr std::size_t count = 100000;
    const int next = (c.rank + 1) % c.ranks, previous = (c.rank + c.ranks - 1) % c.ranks;
    const ScopedWindow<GpuClient> window(c.comm, count * 4, 0);
    auto input = c.poisoned(count * 4), output = c.poisoned(count * 4);
    ncclWaitSignalDesc_t arrival{1, previous, 0, 0}, credit{1, next, 1, 0};
    require(ncclSignal(previous, 1, 0, 0, c.comm, c.stream.get()), "ncclSignal");
    const Graph graph(c.stream.get(), [&] {
      require(ncclWaitSignal(1, &credit, c.comm, c.stream.get()), "ncclWaitSignal");
      require(ncclPutSignal(input.data(), count, ncclInt32, next, window.get(), 0, 0, 0, 0, c.comm, c.stream.get()),
              "ncclPutSignal");
      require(ncclWaitSignal(1, &arrival, c.comm, c.stream.get()), "ncclWaitSignal");
      requireCuda(cudaMemcpyAsync(output.data(), window.data(), count * 4, cudaMemcpyDeviceToDevice, c.stream.get()),
                  "copy");
      require(ncclSignal(previous, 1, 0, 0, c.comm, c.stream.get()), "ncclSignal");
    });
    for (int round = 0; round < 20; ++round) {
      requireCuda(cudaMemsetAsync(input.data(), (c.rank * 20 + round) % 256, count * 4, c.stream.get()), "memset");
      graph.launch(c.stream.get());
      requireSame(c.read(output), Bytes(count * 4, static_cast<unsigned char>((previous * 20 + round) % 256)),
                  [] { return "a put of a graph"; });
    }
    require(ncclWaitSignal(1, &credit, c.comm, c.stream.get()), "ncclWaitSignal");
    checkSum(c, c.comm, "before a window ends");
  });
}

TEST_CASE("calls on several streams are not ordered: a wait does not hold up a put") {
  onRanks<GpuClient>(gpuRanks(), [](GpuRank& c) {
    const int next = (c.rank + 1) % c.ranks, previous = (c.rank + c.ranks - 1) % c.ranks;
    const ScopedWindow<GpuClient> window(c.comm, 4096, 0);  // without one there are no signals
    GpuClient::Stream other;
    ncclWaitSignalDesc_t arrival{1, previous, 0, 0};
    require(ncclWaitSignal(1, &arrival, c.comm, c.stream.get()), "ncclWaitSignal");
    require(ncclSignal(next, 0, 0, 0, c.comm, other.get()), "ncclSignal");
    other.synchronize();
    c.stream.synchronize();
  });
}

TEST_CASE("an abort ends a kernel that waits for a signal") {
  const int ranks = gpuRanks();
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks));
  require(ncclCommInitAll(comms.data(), ranks, nullptr), "ncclCommInitAll");
  std::vector<void*> memory(comms.size());
  std::vector<ncclWindow_t> windows(comms.size());
  require(ncclGroupStart(), "ncclGroupStart");
  for (std::size_t i = 0; i < comms.size(); ++i) {
    GpuClient::setDevice(static_cast<int>(i));
    require(ncclMemAlloc(&memory[i], 4096), "ncclMemAlloc");
    require(ncclCommWindowRegister(comms[i], memory[i], 4096, &windows[i], 0), "ncclCommWindowRegister");
  }
  require(ncclGroupEnd(), "ncclGroupEnd");
  GpuClient::setDevice(0);
  const GpuClient::Stream stream;
  ncclWaitSignalDesc_t never{1, ranks - 1, 0, 0};
  require(ncclWaitSignal(1, &never, comms[0], stream.get()), "ncclWaitSignal");
  CHECK(cudaStreamQuery(stream.get()) == cudaErrorNotReady);
  const auto start = std::chrono::steady_clock::now();
  for (const ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
  stream.synchronize();
  CHECK(secondsSince(start) < 2);
  for (void* each : memory) CHECK(ncclMemFree(each) == ncclSuccess);
}
