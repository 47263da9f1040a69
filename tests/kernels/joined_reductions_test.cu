// Groups of reductions on GPUs, one process and GPU per rank.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "gpu_rank.cuh"
#include "mscclpp/kernels/collectives.hpp"
#include "recorded_calls.hpp"
#include "reduction_group.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

TEST_CASE("groups of reductions") {
  runOnAllGpus("a rank with groups of reductions");
}
TEST_CASE("a rank with groups of reductions" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  const std::vector<DataType> types{DataType::FLOAT32, DataType::BFLOAT16, DataType::FLOAT16, DataType::INT32};
  for (unsigned seed = 1; seed <= 24; ++seed) {
    CAPTURE(seed);
    // By packets of the sentinel protocol, and longer ones by lines, some with kernels of their own.
    const std::vector<std::size_t> counts = seed % 3 == 0   ? std::vector<std::size_t>{0, 1, 7, 8, 9, 300}
                                            : seed % 3 == 1 ? std::vector<std::size_t>{1000, 4096, 9000}
                                                            : std::vector<std::size_t>{3, 33'333, 65'536, 140'000};
    const ReductionGroup group(rank.ranks, seed % 2 == 0 ? 40 : 6, types, counts, seed);
    const Bytes before = group.memory(rank.rank);
    const auto memory = copyToGpu(before);
    const auto compare = [&] {
      MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
      collectives.check();
      Bytes after(before.size());
      gpuMemcpy(after.data(), memory.get(), after.size(), cudaMemcpyDeviceToHost);
      CHECK(group.differenceOf(rank.rank, after) == "");
    };
    const auto calls = group.calls(rank.rank, memory.get(), stream);
    collectives.run(calls);
    compare();
    const Graph graph(stream, [&] { collectives.run(calls); });
    for (int replay = 0; replay < 3; ++replay) {
      gpuMemcpy(memory.get(), before.data(), before.size(), cudaMemcpyHostToDevice);
      rank.sockets->barrier();
      graph.launch();
      compare();
    }
  }
  rank.report("groups of reductions, eager and in graphs, whole memory");
}

TEST_CASE("reductions of a group are one kernel") {
  runOnAllGpus("a rank that counts its kernels");
}
TEST_CASE("a rank that counts its kernels" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  constexpr std::size_t most = 256 << 10;  // bytes
  const auto input = copyToGpu(Bytes(5 * (most + 4) * static_cast<std::size_t>(rank.ranks)));
  const auto output = copyToGpu(Bytes(5 * (most + 4)));
  RecordedCalls calls(collectives, rank.rank);
  const auto check = [&](CollectiveType collective, DataType type, std::size_t bytes, std::size_t wanted) {
    std::vector<CollectiveCall> group;
    for (std::size_t i = 0; i < 5; ++i) {
      group.push_back({.collective = collective,
                       .input = input.get() + i * bytes * static_cast<std::size_t>(rank.ranks),
                       .output = output.get() + i * bytes,
                       .count = bytes / sizeOf(type),
                       .type = type,
                       .stream = stream});
    }
    collectives.run(group);
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
    collectives.check();
    CAPTURE(nameOf(collective));
    CAPTURE(bytes);
    CHECK(calls.sinceLast() == wanted);
  };
  for (const auto collective : {CollectiveType::AllReduce, CollectiveType::ReduceScatter}) {
    for (const DataType type : {DataType::FLOAT32, DataType::FLOAT16, DataType::BFLOAT16}) {
      for (const std::size_t bytes : {16, 4096, 16'000}) check(collective, type, bytes, 1);
    }
    check(collective, DataType::INT32, 4096, 5);
    check(collective, DataType::FLOAT32, most + 4, 5);
  }
  // A longer all-reduce is by LL128 lines, which need links whose stores of a line are atomic.
  const auto known = collectives.algorithms(CollectiveType::AllReduce);
  const bool hasLines = std::find(known.begin(), known.end(), "two_shot_ll128") != known.end();
  if (hasLines) {
    check(CollectiveType::AllReduce, DataType::BFLOAT16, 48 << 10, 1);
    check(CollectiveType::AllReduce, DataType::BFLOAT16, most, 2);
  }
  check(CollectiveType::ReduceScatter, DataType::BFLOAT16, most, 2);
  rank.report("kernels of groups of reductions");
}
