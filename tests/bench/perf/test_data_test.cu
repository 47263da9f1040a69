// The check of results in the memory of a GPU.
#include "test_data_cases.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

TEST_CASE("the check finds one wrong element, and a byte written behind the end") {
  const auto backend = makeGpuBackend(0);
  const auto data = makeGpuTestData();
  testEveryCollective(*backend, *data);
}

TEST_CASE("the ranks' inputs differ") {
  const auto backend = makeGpuBackend(0);
  const auto data = makeGpuTestData();
  testInputsDiffer(*backend, *data);
}

TEST_CASE("a CPU and a GPU make the same inputs") {
  const auto gpu = makeGpuBackend(0);
  const auto cpu = makeCpuBackend(0, 1 << 20);
  constexpr std::size_t count = 5000;
  for (const DataType type : {DataType::UINT8, DataType::FLOAT16, DataType::BFLOAT16, DataType::FLOAT32,
                              DataType::FLOAT64, DataType::FLOAT8_E4M3FN, DataType::FLOAT8_E5M2}) {
    CAPTURE(std::string(nameOf(type)));
    const std::size_t bytes = count * sizeOf(type);
    std::vector<std::byte> fromCpu(bytes);
    std::vector<std::byte> fromGpu(bytes);
    makeCpuTestData()->fillInput(CollectiveType::AllReduce, type, {7, ReduceOp::SUM}, 1, fromCpu.data(), count,
                                 nullptr);
    const auto memory = gpu->allocate(bytes);
    gpu->runOnce([&](CUstream_st* stream) {
      makeGpuTestData()->fillInput(CollectiveType::AllReduce, type, {7, ReduceOp::SUM}, 1, memory.get(), count, stream);
    });
    gpu->download(fromGpu.data(), memory.get(), bytes);
    CHECK(fromCpu == fromGpu);
  }
}
