// Groups of reductions on GPUs, one process and GPU per rank.
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "gpu_rank.cuh"
#include "mscclpp/kernels/collectives.hpp"
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
