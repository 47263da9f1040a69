// Algorithms whose outputs lie in symmetric memory on GPUs, one process and GPU per rank.
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>

#include "algorithm_symmetric_memory_cases.hpp"
#include "gpu_rank.cuh"
#include "mscclpp/host/base/logger.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

template <std::shared_ptr<unsigned char> (*allocate)(std::size_t)>
class BufferOf {
 public:
  explicit BufferOf(std::size_t bytes) : memory_(allocate(bytes)) {}
  std::byte* data() const { return reinterpret_cast<std::byte*>(memory_.get()); }
  void write(const Bytes& bytes) {
    gpuMemcpy(memory_.get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  }
  Bytes read(std::size_t bytes, CUstream_st* stream) const {
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
    Bytes result(bytes);
    gpuMemcpy(result.data(), memory_.get(), bytes, cudaMemcpyDeviceToHost);
    return result;
  }

 private:
  std::shared_ptr<unsigned char> memory_;
};

std::shared_ptr<unsigned char> allocatePlain(std::size_t bytes) {
  return detail::gpuCallocShared<unsigned char>(bytes);
}
using Buffer = BufferOf<allocatePlain>;

/// cuMem memory, which peers may keep mapped when its owner has freed it; memory of cudaMalloc they may not.
std::shared_ptr<unsigned char> allocateShareable(std::size_t bytes) {
  return GpuBuffer<unsigned char>(bytes).memory();
}
using ShareableBuffer = BufferOf<allocateShareable>;

/// Runs a case on this process's GPU.
void onGpu(const std::function<void(const SymmetricRank&)>& body) {
  const GpuRank gpu;
  const auto collection = collective::AlgorithmCollectionBuilder::getInstance()->buildDefaultAlgorithms();
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  body({gpu.communicator, *gpu.bootstrap, gpu.rank, gpu.ranks, DeviceType::GPU, collection, stream});
  gpu.bootstrap->barrier();
}

}  // namespace

TEST_CASE("every algorithm that uses symmetric memory") {
  runOnAllGpus("a rank of every algorithm that uses symmetric memory");
}
TEST_CASE("a rank of every algorithm that uses symmetric memory" * doctest::skip()) {
  onGpu([](const SymmetricRank& rank) { checkSymmetricAlgorithms<Buffer>(rank, {1, 4099, 60'001}); });
}

TEST_CASE("the same bits as those of Collectives") {
  runOnAllGpus("a rank that compares with Collectives");
}
TEST_CASE("a rank that compares with Collectives" * doctest::skip()) {
  onGpu([](const SymmetricRank& rank) { checkSameAsCollectives<Buffer>(rank); });
}

TEST_CASE("memory of which a later call does not say that it is symmetric") {
  runOnAllGpus("a rank with other offsets");
}
TEST_CASE("a rank with other offsets" * doctest::skip()) {
  onGpu([](const SymmetricRank& rank) { checkOtherOffsets<Buffer>(rank); });
}

TEST_CASE("memory that has been freed and allocated again") {
  runOnAllGpus("a rank that frees memory");
}
TEST_CASE("a rank that frees memory" * doctest::skip()) {
  onGpu([](const SymmetricRank& rank) {
    Buffer source(4096);
    std::vector<std::unique_ptr<ShareableBuffer>> kept;
    for (int i = 0; i < 4; ++i) {
      // Some ranks get the address again, others another one.
      if (rank.rank % 2 == 1) kept.push_back(std::make_unique<ShareableBuffer>(64 << 10));
      ShareableBuffer target(64 << 10);
      CHECK(gatherTo(rank, source, target, 64, true) == gathered(rank.ranks, 64));
    }
  });
}

TEST_CASE("captured in a graph, after the first call with the allocation only") {
  runOnAllGpus("a rank that captures a call in symmetric memory");
}
TEST_CASE("a rank that captures a call in symmetric memory" * doctest::skip()) {
  onGpu([](const SymmetricRank& rank) {
    std::string lastError;
    setLogHandler([&](LogLevel, LogSubsystem, const std::string& message) { lastError = message; });
    Buffer source(4096);
    Buffer first(64 << 10);
    Buffer target(64 << 10);
    CHECK(gatherTo(rank, source, first, 0, true) == gathered(rank.ranks, 0));
    const CollectiveCall call{.collective = CollectiveType::AllGather,
                              .input = source.data(),
                              .output = target.data(),
                              .count = 1000,
                              .stream = rank.stream};
    const auto execute = [&] {
      return executeCall(*rank.find("allgather", "mscclpp_allgather"), rank.communicator, rank.ranks, call, true);
    };
    {
      const Graph empty(rank.stream, [&] { CHECK(execute() == CommResult::CommInvalidUsage); });
    }
    CHECK(lastError.find("before the capture begins") != std::string::npos);
    CHECK(execute() == CommResult::CommSuccess);
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(rank.stream));
    const Graph graph(rank.stream, [&] { CHECK(execute() == CommResult::CommSuccess); });
    for (int i = 0; i < 3; ++i) {
      rank.bootstrap.barrier();
      target.write(Bytes(gatheredBytes, poisonByte));
      rank.bootstrap.barrier();
      graph.launch();
      CHECK(target.read(gatheredBytes, rank.stream) == gathered(rank.ranks, 0));
    }
    rank.bootstrap.barrier();
    rank.find("allgather", "mscclpp_allgather")->reset();
    rank.bootstrap.barrier();
    setLogHandler({});
  });
}
