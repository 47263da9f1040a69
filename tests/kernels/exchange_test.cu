// Exchanges on GPUs, one process and GPU per rank.
#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <vector>

#include "gpu_rank.cuh"
#include "message_plan.hpp"
#include "move_group.hpp"
#include "mscclpp/kernels/collectives.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

/// Around the longest messages of each protocol, and longer than the rings.
const std::vector<std::size_t> sizes{0,      16,      1000,      65'535,    65'536,   65'537,
                                     80'000, 500'000, 1'048'576, 1'048'577, 3'000'001};

/// The memory of a plan on this rank.
struct PlanBuffers {
  const MessagePlan& plan;
  detail::UniqueGpuPtr<Bytes::value_type> input;
  detail::UniqueGpuPtr<Bytes::value_type> output;

  PlanBuffers(const MessagePlan& messages, int rank)
      : plan(messages), input(copyToGpu(plan.inputOf(rank))), output(copyToGpu(Bytes(plan.bytes(), poisonByte))) {}

  /// Enqueues the calls of the plan, with the output poisoned before.
  void enqueue(Collectives& collectives, int rank, cudaStream_t stream) const {
    MSCCLPP_CUDATHROW(cudaMemsetAsync(output.get(), poisonByte, plan.bytes(), stream));
    plan.perform(collectives, rank, input.get(), output.get(), stream);
  }
  void check(const Collectives& collectives, int rank, cudaStream_t stream) const {
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
    collectives.check();
    Bytes all(plan.bytes());
    gpuMemcpy(all.data(), output.get(), all.size(), cudaMemcpyDeviceToHost);
    const std::string difference = plan.differenceOf(rank, all);
    CHECK(difference == "");
  }
};

}  // namespace

TEST_CASE("random messages, which each rank divides into calls at places of its own") {
  runOnAllGpus("a rank with random messages");
}
TEST_CASE("a rank with random messages" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  int plans = 0;
  const auto check = [&](const MessagePlan& plan) {
    const PlanBuffers buffers(plan, rank.rank);
    buffers.enqueue(collectives, rank.rank, stream);
    buffers.check(collectives, rank.rank, stream);
    ++plans;
  };
  for (unsigned seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    for (const std::size_t most : {1, 4, 16}) check(MessagePlan(rank.ranks, 60, sizes, most, seed));
    // Of one protocol, more of them in a call than there are sets of slots.
    for (const std::size_t bytes : {1000, 300'000, 2'000'000}) {
      check(MessagePlan(rank.ranks, 50, {bytes}, 30, seed));
    }
  }
  // Aligned, all ranks to all ranks.
  for (const std::size_t bytes : {16, 4096, 65'536, 1 << 20, 8 << 20}) check(MessagePlan(rank.ranks, bytes));
  rank.report(std::to_string(plans) + " plans of random messages, whole outputs");
}

TEST_CASE("graphs of exchanges are replayed") {
  runOnAllGpus("a rank that replays exchanges");
}
TEST_CASE("a rank that replays exchanges" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  const MessagePlan plan(rank.ranks, 40, sizes, 8, 5);
  const MessagePlan shortPlan(rank.ranks, 60, {16, 1000, 8192}, 12, 6);
  const PlanBuffers buffers(plan, rank.rank);
  const PlanBuffers shortBuffers(shortPlan, rank.rank);
  const Graph graph(stream, [&] {
    buffers.enqueue(collectives, rank.rank, stream);
    shortBuffers.enqueue(collectives, rank.rank, stream);
  });
  for (int replay = 0; replay < 300; ++replay) {
    graph.launch();
    if (replay % 50 != 0) continue;
    buffers.check(collectives, rank.rank, stream);
    shortBuffers.check(collectives, rank.rank, stream);
    // Calls between the replays use the same epochs.
    shortBuffers.enqueue(collectives, rank.rank, stream);
    shortBuffers.check(collectives, rank.rank, stream);
  }
  buffers.check(collectives, rank.rank, stream);
  shortBuffers.check(collectives, rank.rank, stream);
  rank.report("300 replays of a graph of exchanges, whole outputs");
}

TEST_CASE("groups of short moves") {
  runOnAllGpus("a rank with groups of short moves");
}
TEST_CASE("a rank with groups of short moves" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  for (unsigned seed = 1; seed <= 9; ++seed) {
    CAPTURE(seed);
    // By packets of both kinds, and by the pipeline.
    const std::vector<std::size_t> sizes = seed % 3 == 0   ? std::vector<std::size_t>{65'536, 65'521}
                                           : seed % 3 == 1 ? std::vector<std::size_t>{0, 1, 16, 1000, 8192}
                                                           : std::vector<std::size_t>{16'384, 40'000};
    const MoveGroup group(rank.ranks, seed % 2 == 0 ? 32 : 5, sizes, seed);
    const auto input = copyToGpu(group.input(rank.rank));
    const Bytes before = group.output(rank.rank);
    const auto output = copyToGpu(before);
    const auto compare = [&] {
      MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
      collectives.check();
      rank.sockets->barrier();
      Bytes after(before.size());
      gpuMemcpy(after.data(), output.get(), after.size(), cudaMemcpyDeviceToHost);
      CHECK(after == group.expected(rank.rank));
    };
    const auto calls = group.calls(rank.rank, input.get(), output.get(), stream);
    collectives.run(calls);
    compare();
    const Graph graph(stream, [&] { collectives.run(calls); });
    for (int replay = 0; replay < 3; ++replay) {
      gpuMemcpy(output.get(), before.data(), before.size(), cudaMemcpyHostToDevice);
      rank.sockets->barrier();
      graph.launch();
      compare();
    }
  }
  rank.report("groups of short moves, eager and in graphs, whole outputs");
}

TEST_CASE("exchanges while the epochs pass 2^32") {
  runOnAllGpus("a rank whose epochs pass 2^32");
}
TEST_CASE("a rank whose epochs pass 2^32" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  collectives.setEpoch((std::uint64_t{1} << 32) - 9);
  for (unsigned seed = 0; seed < 6; ++seed) {
    const MessagePlan plan(rank.ranks, 60, {100, 70'000, 2'000'000}, 12, seed);
    const PlanBuffers buffers(plan, rank.rank);
    buffers.enqueue(collectives, rank.rank, stream);
    buffers.check(collectives, rank.rank, stream);
  }
  rank.report("exchanges across the wrap of the 32-bit flags");
}

TEST_CASE("exchanges with few blocks") {
  runOnAllGpus("a rank with few blocks");
}
TEST_CASE("a rank with few blocks" * doctest::skip()) {
  GpuRank rank;
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  for (const int maxBlocks : {1, 3}) {
    Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::Selected, maxBlocks);
    const MessagePlan plan(rank.ranks, 60, sizes, 12, 1);
    const PlanBuffers buffers(plan, rank.rank);
    buffers.enqueue(collectives, rank.rank, stream);
    buffers.check(collectives, rank.rank, stream);
    rank.bootstrap->barrier();
  }
}
