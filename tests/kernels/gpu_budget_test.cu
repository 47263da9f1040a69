// Several objects on a GPU at once, and one object on several streams: one process and GPU per rank.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "checked_calls.cuh"
#include "gpu_rank.cuh"
#include "kernels/gpu_budget.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"
#include "mscclpp/kernels/collectives.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr std::size_t longest = 2'000'000;  // 8 MB: "pipelined" is named below, its kernels have the most blocks
constexpr int callsPerRound = 8;

/// Calls with many long messages and some short ones, after random delays of each rank.
void enqueueRound(CheckedCalls& calls) {
  for (int call = 0; call < callsPerRound; ++call) {
    if (call % 4 == 3) {
      calls.enqueue(sumOf(1000));
    } else {
      calls.enqueue(sumOf(longest - static_cast<std::size_t>(call), "pipelined"));
    }
  }
  calls.enqueueNextRound();
}

/// Waits of kernels that never meet their peers fail soon.
void setWaitTimeout() {
  ::setenv("MSCCLPP_WAIT_TIMEOUT", "10", 1);  // before the library reads it
}

}  // namespace

TEST_CASE("objects that fit: calls start in different orders on the ranks") {
  runOnAllGpus("a rank with objects that fit");
}
TEST_CASE("a rank with objects that fit" * doctest::skip()) {
  setWaitTimeout();
  GpuRank rank;
  Collectives first(rank.communicator, DeviceType::GPU, Collectives::Algorithms::Selected, 16);
  Collectives second(rank.communicator, DeviceType::GPU, Collectives::Algorithms::Selected, 16);
  CHECK(first.isConcurrent());
  CHECK(second.isConcurrent());
  // Takes the other slots in the chain: the two must have room beside it.
  Collectives chained(rank.communicator, DeviceType::GPU);
  CHECK_FALSE(chained.isConcurrent());
  std::vector<CheckedCalls*> all;
  CheckedCalls one(rank, first, longest);
  CheckedCalls two(rank, second, longest);
  CheckedCalls three(rank, chained, longest);
  all = {&one, &two, &three};
  // Loading a kernel may wait for running ones, so load all first.
  for (CheckedCalls* calls : all) {
    enqueueRound(*calls);
    CHECK(calls->wrongElements() == 0);
  }
  rank.bootstrap->barrier();
  constexpr int rounds = 30;
  const auto inOrderOf = [&](int round, const auto& start) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      start((i + static_cast<std::size_t>(round + rank.rank)) % all.size());
    }
  };
  for (int round = 0; round < rounds; ++round) inOrderOf(round, [&](std::size_t i) { enqueueRound(*all[i]); });
  for (CheckedCalls* calls : all) CHECK(calls->wrongElements() == 0);
  std::vector<std::unique_ptr<Graph>> graphs;
  for (CheckedCalls* calls : all) {
    graphs.push_back(std::make_unique<Graph>(calls->stream(), [&] { enqueueRound(*calls); }));
  }
  for (int round = 0; round < rounds; ++round) inOrderOf(round, [&](std::size_t i) { graphs[i]->launch(); });
  for (CheckedCalls* calls : all) CHECK(calls->wrongElements() == 0);
  rank.report("two concurrent objects and a chained one, started in different orders");
  rank.bootstrap->barrier();
}

TEST_CASE("objects that do not fit: calls on two streams in one order on all ranks") {
  runOnAllGpus("a rank with chained objects");
}
TEST_CASE("a rank with chained objects" * doctest::skip()) {
  setWaitTimeout();
  GpuRank rank;
  Collectives first(rank.communicator, DeviceType::GPU);
  Collectives second(rank.communicator, DeviceType::GPU);
  CHECK_FALSE(first.isConcurrent());
  CHECK_FALSE(second.isConcurrent());
  CheckedCalls one(rank, first, longest);
  CheckedCalls two(rank, second, longest);
  for (CheckedCalls* calls : {&one, &two}) {
    enqueueRound(*calls);
    CHECK(calls->wrongElements() == 0);
  }
  rank.bootstrap->barrier();
  constexpr int rounds = 30;
  // Random delays before each call: without the chain the kernels would start in different orders on the ranks.
  for (int round = 0; round < rounds; ++round) {
    enqueueRound(one);
    enqueueRound(two);
  }
  CHECK(one.wrongElements() == 0);
  CHECK(two.wrongElements() == 0);
  // In graphs, with eager calls between the launches.
  const Graph graphOne(one.stream(), [&] { enqueueRound(one); });
  const Graph graphTwo(two.stream(), [&] { enqueueRound(two); });
  for (int round = 0; round < rounds; ++round) {
    graphOne.launch();
    graphTwo.launch();
    if (round % 3 == 0) {
      enqueueRound(two);
      enqueueRound(one);
    }
  }
  CHECK(one.wrongElements() == 0);
  CHECK(two.wrongElements() == 0);
  rank.report("two chained objects on two streams");
  rank.bootstrap->barrier();
}

namespace {

/// Calls an object on two streams, with nothing else that orders them: each call has the result of the one before as
/// its input.
void testTwoStreams(const GpuRank& rank, Collectives& collectives) {
  constexpr std::size_t count = 1'000'003;
  constexpr int sums = 6;  // of up to 8 ranks: exact in a float
  float expected = 1;
  for (int i = 0; i < sums; ++i) expected *= static_cast<float>(rank.ranks);
  const auto values = detail::gpuCallocUnique<float>(count);
  const std::vector<float> ones(count, 1.0f);
  const CudaStreamWithFlags first(cudaStreamNonBlocking);
  const CudaStreamWithFlags second(cudaStreamNonBlocking);
  const auto enqueueSums = [&](cudaStream_t one, cudaStream_t two) {
    for (int i = 0; i < sums; ++i) {
      collectives.allReduce(values.get(), values.get(), count, DataType::FLOAT32, ReduceOp::SUM,
                            i % 2 == 0 ? one : two);
    }
  };
  const auto start = [&] {
    gpuMemcpy(values.get(), ones.data(), count, cudaMemcpyHostToDevice);
    rank.bootstrap->barrier();
  };
  const auto check = [&] {
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(first));
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(second));
    collectives.check();
    std::vector<float> result(count);
    gpuMemcpy(result.data(), values.get(), count, cudaMemcpyDeviceToHost);
    CHECK(std::count(result.begin(), result.end(), expected) == static_cast<std::ptrdiff_t>(count));
  };
  for (int round = 0; round < 20; ++round) {
    start();
    enqueueSums(first, second);
    check();
  }
  // A graph of calls on two streams, captured on streams that are destroyed, and eager calls between its launches.
  cudaGraphExec_t executable = nullptr;
  {
    const CudaStreamWithFlags origin(cudaStreamNonBlocking);
    const CudaStreamWithFlags forked(cudaStreamNonBlocking);
    cudaEvent_t event = nullptr;
    MSCCLPP_CUDATHROW(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    MSCCLPP_CUDATHROW(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal));
    MSCCLPP_CUDATHROW(cudaEventRecord(event, origin));
    MSCCLPP_CUDATHROW(cudaStreamWaitEvent(forked, event, 0));
    enqueueSums(origin, forked);
    MSCCLPP_CUDATHROW(cudaEventRecord(event, forked));
    MSCCLPP_CUDATHROW(cudaStreamWaitEvent(origin, event, 0));
    cudaGraph_t graph = nullptr;
    MSCCLPP_CUDATHROW(cudaStreamEndCapture(origin, &graph));
    MSCCLPP_CUDATHROW(cudaGraphInstantiate(&executable, graph, 0));
    MSCCLPP_CUDATHROW(cudaGraphDestroy(graph));
    MSCCLPP_CUDATHROW(cudaEventDestroy(event));
  }
  for (int round = 0; round < 20; ++round) {
    start();
    MSCCLPP_CUDATHROW(cudaGraphLaunch(executable, first));
    check();
    start();
    enqueueSums(second, first);
    check();
  }
  MSCCLPP_CUDATHROW(cudaGraphExecDestroy(executable));
  rank.bootstrap->barrier();
}

}  // namespace

TEST_CASE("one object on two streams: calls run one after another") {
  runOnAllGpus("a rank with one object on two streams");
}
TEST_CASE("a rank with one object on two streams" * doctest::skip()) {
  setWaitTimeout();
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU);
  testTwoStreams(rank, collectives);
  // The two are chained.
  Collectives other(rank.communicator, DeviceType::GPU);
  testTwoStreams(rank, other);
  rank.report("one object on two streams, eager and captured");
  rank.bootstrap->barrier();
}
