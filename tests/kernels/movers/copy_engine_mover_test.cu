// CopyEngineMover on GPUs, one process and GPU per rank.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "copy_engine_mover_cases.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"
#include "tests/host/spawned_ranks.hpp"
#include "tests/kernels/rounds.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr int timeoutSeconds = 120;

class GpuMemory {
 public:
  static constexpr DeviceType type = DeviceType::GPU;
  explicit GpuMemory(std::size_t bytes) : bytes_(bytes), buffer_(bytes) {}
  char* data() const { return buffer_.data(); }
  std::size_t bytes() const { return bytes_; }
  void write(std::size_t offset, const MovedBytes& from) {
    if (from.empty()) return;
    gpuMemcpy(data() + offset, reinterpret_cast<const char*>(from.data()), from.size());
  }
  MovedBytes read() const {
    MovedBytes to(bytes_);
    gpuMemcpy(reinterpret_cast<char*>(to.data()), data(), to.size());
    return to;
  }
  static void synchronize(CUstream_st* stream) { MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream)); }

 private:
  std::size_t bytes_;
  GpuBuffer<char> buffer_;
};

int gpuCount() {
  int count = 0;
  MSCCLPP_CUDATHROW(cudaGetDeviceCount(&count));
  return count;
}

/// One rank per GPU, 8 at most; at least 3, of which some then share a GPU.
std::vector<int> teamSizes() {
  return {2, std::max(std::min(gpuCount(), 8), 3)};
}

/// Barriers of ranks that share a GPU take milliseconds each, as the GPU alternates between the processes.
bool sharesGpu(const Bootstrap& bootstrap) {
  return bootstrap.getNranks() > gpuCount();
}

std::shared_ptr<Bootstrap> bootstrapWithGpu() {
  ::alarm(timeoutSeconds);  // terminates this process in any case
  auto bootstrap = bootstrapOfProcess();
  MSCCLPP_CUDATHROW(cudaSetDevice(bootstrap->getRank() % gpuCount()));
  return bootstrap;
}

// ---- Calls whose data is generated and checked on the GPU ----

MSCCLPP_HOST_DEVICE std::uint32_t inputWord(int rank, std::uint64_t round, std::size_t i) {
  return static_cast<std::uint32_t>(mix(i ^ (static_cast<std::uint64_t>(rank) << 24) ^ mix(round)));
}

__global__ void fillInput(std::uint32_t* input, std::size_t words, const std::uint64_t* round, int rank) {
  beLate(rank, *round);
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) {
    input[i] = inputWord(rank, *round, i);
  }
}

/// Part p of the output is from rank firstRank + p; it is overwritten after it was checked.
__global__ void checkOutput(std::uint32_t* output, std::size_t words, int parts, int firstRank,
                            const std::uint64_t* round, unsigned long long* wrong) {
  const std::size_t all = words * static_cast<std::size_t>(parts);
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < all; i += gridDim.x * blockDim.x) {
    if (output[i] != inputWord(firstRank + static_cast<int>(i / words), *round, i % words)) atomicAdd(wrong, 1ull);
    output[i] = 0xdeadbeefu;
  }
}

/// An all-gather and a broadcast in one graph, replayed without synchronisation in between.
void replayGraph(const std::shared_ptr<Bootstrap>& bootstrap, std::size_t words, const CopyEngineOptions& options,
                 int replays) {
  const int rank = bootstrap->getRank();
  const int ranks = bootstrap->getNranks();
  const int root = ranks - 1;
  Communicator communicator(bootstrap);
  CopyEngineMover mover(communicator, DeviceType::GPU, options);
  const GpuBuffer<std::uint32_t> input(words);
  const GpuBuffer<std::uint32_t> output(words * static_cast<std::size_t>(ranks));
  const auto round = detail::gpuCallocUnique<std::uint64_t>();
  const auto wrong = detail::gpuCallocUnique<unsigned long long>();
  const std::size_t bytes = words * sizeof(std::uint32_t);
  const RegisteredBuffer registered(communicator, output.data(), bytes * static_cast<std::size_t>(ranks));
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  MSCCLPP_CUDATHROW(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  const auto fill = [&] { fillInput<<<32, 256, 0, stream>>>(input.data(), words, round.get(), rank); };
  fill();
  mover.allGather(input.data(), registered.window(), bytes, stream);
  checkOutput<<<32, 256, 0, stream>>>(output.data(), words, ranks, 0, round.get(), wrong.get());
  nextRound<<<1, 1, 0, stream>>>(round.get());
  fill();
  mover.broadcast(input.data(), registered.window(), bytes, root, stream);
  checkOutput<<<32, 256, 0, stream>>>(output.data(), words, 1, root, round.get(), wrong.get());
  nextRound<<<1, 1, 0, stream>>>(round.get());
  MSCCLPP_CUDATHROW(cudaGetLastError());
  MSCCLPP_CUDATHROW(cudaStreamEndCapture(stream, &graph));
  MSCCLPP_CUDATHROW(cudaGraphInstantiate(&executable, graph, 0));
  MSCCLPP_CUDATHROW(cudaGraphDestroy(graph));

  bootstrap->barrier();
  for (int i = 0; i < replays; ++i) MSCCLPP_CUDATHROW(cudaGraphLaunch(executable, stream));
  MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
  mover.check();
  // Calls outside of the graph continue the same sequence.
  fill();
  mover.allGather(input.data(), registered.window(), bytes, stream);
  checkOutput<<<32, 256, 0, stream>>>(output.data(), words, ranks, 0, round.get(), wrong.get());
  MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
  mover.check();
  unsigned long long wrongWords = 1;
  gpuMemcpy(&wrongWords, wrong.get(), 1, cudaMemcpyDeviceToHost);
  CHECK(wrongWords == 0);
  MSCCLPP_CUDATHROW(cudaGraphExecDestroy(executable));
  bootstrap->barrier();
}

}  // namespace

TEST_CASE("copy engine mover: every collective, size and root on GPUs") {
  for (const int ranks : teamSizes()) {
    runAsProcesses(ranks, "copy engine mover: one GPU moves everything", std::chrono::seconds(timeoutSeconds));
  }
}
TEST_CASE("copy engine mover: one GPU moves everything" * doctest::skip()) {
  const auto bootstrap = bootstrapWithGpu();
  Communicator communicator(bootstrap);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  MoveTester<GpuMemory> whole(communicator, {}, 3'000'000);
  MoveTester<GpuMemory> inPieces(
      communicator, {.permutationPieceBytes = 30'001, .broadcastPieceBytes = 20'001, .copiesPerTransfer = 2}, 100'000);
  if (sharesGpu(*bootstrap)) {
    whole.checkAll({13, 3'000'000}, stream);
    inPieces.checkAll({70'000}, stream);
  } else {
    whole.checkAll({1, 0, 13, 4096, 3'000'000}, stream);
    inPieces.checkAll({1, 30'001, 99'999}, stream);
    inPieces.checkAll({77}, nullptr);
  }
  bootstrap->barrier();
}

TEST_CASE("copy engine mover: graphs replay on GPUs") {
  for (const int ranks : teamSizes()) {
    runAsProcesses(ranks, "copy engine mover: one GPU replays", std::chrono::seconds(timeoutSeconds));
  }
}
TEST_CASE("copy engine mover: one GPU replays" * doctest::skip()) {
  const auto bootstrap = bootstrapWithGpu();
  const bool isSlow = sharesGpu(*bootstrap);
  replayGraph(bootstrap, 10'007, {}, isSlow ? 20 : 300);
  const CopyEngineOptions inPieces{.broadcastPieceBytes = (isSlow ? std::size_t{8} : std::size_t{1}) << 20,
                                   .copiesPerTransfer = 2};
  replayGraph(bootstrap, 4'000'001, inPieces, isSlow ? 5 : 30);
}

TEST_CASE("copy engine mover: a GPU that does not call") {
  const std::string timeout = "MSCCLPP_WAIT_TIMEOUT=1";
  const int ranks = std::max(std::min(gpuCount(), 8), 2);
  runAsProcesses(ranks, "copy engine mover: one GPU waits for another", std::chrono::seconds(timeoutSeconds), -1,
                 std::vector<std::string>(static_cast<std::size_t>(ranks), timeout));
}
TEST_CASE("copy engine mover: one GPU waits for another" * doctest::skip()) {
  failBecauseRankOneIsLate<GpuMemory>(bootstrapWithGpu());
}
