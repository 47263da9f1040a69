// All-gathers by the copy engines beside GEMMs of cuBLAS, one process and GPU per rank. The weights are the identity,
// so that a product is exactly the gathered rows: those of another call, or that had not arrived, are found.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/gemm/cublas.hpp"
#include "kernels/gemm/overlapped_gather.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/host/base/error.hpp"
#include "tests/kernels/call_failure.cuh"
#include "tests/kernels/gpu_rank.cuh"
#include "tests/kernels/rounds.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

/// An integer that bf16 and sums in fp32 have exactly.
MSCCLPP_HOST_DEVICE float valueOf(std::size_t i, std::uint64_t round) {
  return static_cast<float>(mix(i ^ mix(round)) % 128) - 64;
}

/// Writes this rank's elements, from `first` of all on.
__global__ void fillInput(bf16* input, std::size_t first, std::size_t count, const std::uint64_t* round, int rank) {
  beLate(rank, *round);
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    input[i] = narrow<bf16>(valueOf(first + i, *round));
  }
}
__global__ void checkOutput(bf16* output, std::size_t count, const std::uint64_t* round, unsigned long long* wrong) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    if (widen(output[i]) != valueOf(i, *round)) atomicAdd(wrong, 1ull);
    output[i] = narrow<bf16>(-77.0f);
  }
}

/// Null where there is none: such a GPU has no calls in this form.
std::shared_ptr<const kernels::Cublas> findCublas() {
  try {
    return std::make_shared<const kernels::Cublas>("");
  } catch (const Error& error) {
    MESSAGE("not run: " << error.what());
    return nullptr;
  }
}

/// Calls of one OverlappedGather with square weights.
class GatherTester {
 public:
  GatherTester(const GpuRank& rank, std::shared_ptr<const kernels::Cublas> cublas, std::size_t mostOwnRows,
               std::size_t width)
      : rank_(rank),
        width_(width),
        input_(detail::gpuCallocUnique<bf16>(mostOwnRows * width)),
        output_(detail::gpuCallocUnique<bf16>(mostOwnRows * ranks() * width)),
        gather_(*rank.communicator, std::move(cublas), mostOwnRows * ranks(), width) {
    std::vector<bf16> identity(width * width, narrow<bf16>(0.0f));
    for (std::size_t i = 0; i < width; ++i) identity[i * width + i] = narrow<bf16>(1.0f);
    weight_ = copyToGpu(identity);
  }

  const kernels::OverlappedGather& gather() const { return gather_; }
  cudaStream_t stream() const { return stream_; }

  /// columns: of the weights; another number than theirs is for calls that fail.
  void gather(std::size_t ownRows, std::size_t parts, std::size_t columns) {
    gather_.run({input_.get(), weight_.get(), output_.get(), ownRows * ranks(), stream_, columns, width_}, parts);
  }
  void enqueue(std::size_t ownRows, std::size_t parts) {
    const std::size_t own = ownRows * width_, all = own * ranks();
    fillInput<<<32, 256, 0, stream_>>>(input_.get(), static_cast<std::size_t>(rank_.rank) * own, own, round_.get(),
                                       rank_.rank);
    gather(ownRows, parts, width_);
    checkOutput<<<32, 256, 0, stream_>>>(output_.get(), all, round_.get(), wrong_.get());
    nextRound<<<1, 1, 0, stream_>>>(round_.get());
    MSCCLPP_CUDATHROW(cudaGetLastError());
  }

  /// A graph of two calls, replayed without synchronisation in between, and a call outside of it.
  void check(std::size_t ownRows, std::size_t parts, int replays) {
    CAPTURE(ownRows);
    CAPTURE(parts);
    const Graph graph(stream_, [&] {
      enqueue(ownRows, parts);
      enqueue(ownRows, parts);
    });
    for (int i = 0; i < replays; ++i) graph.launch();
    enqueue(ownRows, parts);
    checkResults();
  }
  void checkResults() const {
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream_));
    gather_.check();
    unsigned long long wrong = 1;
    gpuMemcpy(&wrong, wrong_.get(), 1, cudaMemcpyDeviceToHost);
    CHECK(wrong == 0);
  }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(rank_.ranks); }

  const GpuRank& rank_;
  std::size_t width_;
  detail::UniqueGpuPtr<bf16> input_, output_, weight_;
  detail::UniqueGpuPtr<std::uint64_t> round_ = detail::gpuCallocUnique<std::uint64_t>();
  detail::UniqueGpuPtr<unsigned long long> wrong_ = detail::gpuCallocUnique<unsigned long long>();
  CudaStreamWithFlags stream_{cudaStreamNonBlocking};
  kernels::OverlappedGather gather_;
};

}  // namespace

TEST_CASE("overlapped gather: rows in any number of parts, in replayed graphs, while ranks are late") {
  runOnAllGpus("a rank gathers in parts");
}
TEST_CASE("a rank gathers in parts" * doctest::skip()) {
  const GpuRank rank;
  const auto cublas = findCublas();
  if (cublas == nullptr) return;
  // Barriers of ranks that share a GPU take milliseconds each, as the GPU alternates between the processes.
  const bool isSlow = rank.ranks > gpus();
  {
    GatherTester tester(rank, cublas, 300, 256);
    for (const std::size_t ownRows : {1, 7, 300}) {
      for (const std::size_t parts : {1, 2, 3, 8}) tester.check(ownRows, parts, isSlow ? 3 : 100);
    }
    // Calls of all sizes in turns, of two graphs and without, and no synchronisation between them.
    const auto enqueueAll = [&] {
      for (const std::size_t ownRows : {300, 1, 150, 7}) {
        for (const std::size_t parts : {3, 1, 2}) tester.enqueue(ownRows, parts);
      }
    };
    const Graph one(tester.stream(), enqueueAll), other(tester.stream(), [&] { tester.enqueue(200, 2); });
    for (int i = 0; i < (isSlow ? 2 : 50); ++i) {
      one.launch();
      other.launch();
      tester.enqueue(100, 1);
    }
    tester.checkResults();
    rank.bootstrap->barrier();
  }
  GatherTester tester(rank, cublas, 2000, 2048);
  for (const std::size_t parts : {1, 4}) tester.check(2000, parts, isSlow ? 2 : 30);
  rank.report("gathers in parts");
  rank.bootstrap->barrier();
}

TEST_CASE("overlapped gather: a GEMM that fails on one rank does not keep the others from theirs") {
  runOnAllGpus("a rank whose GEMM fails");
}
TEST_CASE("a rank whose GEMM fails" * doctest::skip()) {
  const GpuRank rank;
  const auto cublas = findCublas();
  if (cublas == nullptr) return;
  GatherTester tester(rank, cublas, 300, 256);
  tester.check(300, 3, 1);
  // More columns than cuBLAS takes.
  const auto fail = [&] { tester.gather(300, 3, std::size_t{1} << 31); };
  if (rank.rank == 0) {
    CHECK_THROWS_AS(fail(), Error);
  } else {
    tester.gather(300, 3, 256);
  }
  tester.checkResults();
  rank.bootstrap->barrier();
  tester.check(300, 3, 1);
  // A capture can end, and calls go on.
  MSCCLPP_CUDATHROW(cudaStreamBeginCapture(tester.stream(), cudaStreamCaptureModeThreadLocal));
  CHECK_THROWS_AS(fail(), Error);
  cudaGraph_t graph = nullptr;
  MSCCLPP_CUDATHROW(cudaStreamEndCapture(tester.stream(), &graph));
  MSCCLPP_CUDATHROW(cudaGraphDestroy(graph));
  tester.check(300, 3, 1);
  rank.report("GEMMs that fail");
  rank.bootstrap->barrier();
}

TEST_CASE("overlapped gather: a killed rank is named to the others, and their kernels end") {
  runOnAllGpus("a rank that gathers loses another", std::max(gpus(), 2) - 1);
}
TEST_CASE("a rank that gathers loses another" * doctest::skip()) {
  const GpuRank rank;
  const bool isKilled = rank.rank == rank.ranks - 1;
  if (isKilled) killSoon();
  const auto cublas = findCublas();
  if (cublas == nullptr) {
    if (isKilled) std::this_thread::sleep_for(std::chrono::seconds(5));
    return;
  }
  GatherTester tester(rank, cublas, 300, 256);
  const auto failure = callUntilFailure(
      tester.stream(), [&] { tester.enqueue(300, 2); }, [&] { tester.gather().check(); });
  checkFailure(failure, ErrorCode::RemoteError, "rank " + std::to_string(rank.ranks - 1) + " failed");
  CHECK_THROWS_AS(tester.enqueue(300, 2), Error);
  rank.report("a killed rank was named");
}
