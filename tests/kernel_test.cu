// The launcher of collectives: limits of the shape, dynamic shared memory, and kernels that start early.
#include <doctest/doctest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "mscclpp/arch/clock.hpp"
#include "mscclpp/kernel.cuh"
#include "tests/backend/gpu.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

/// A collective of one rank: each block fills its shared memory and counts the bytes that are right afterwards. `Tag`
/// makes kernels of their own, which no other case has launched.
template <int Tag>
struct FillSharedMemory {
  struct Args {
    std::size_t bytes;
    unsigned long long* right;
  };
  static constexpr int maxBlockThreads = 128;

  static std::size_t sharedBytes(const Args& args, LaunchShape /*shape*/) { return args.bytes; }

  template <SharedMemoryGrid GridType, class Source, class Sink>
  static MSCCLPP_INLINE void run(const GridType& grid, const Args& args, const Source&, const Sink&) {
#if defined(__CUDA_ARCH__)
    const auto block = grid.block();
    auto* const shared = reinterpret_cast<unsigned char*>(grid.sharedMemory());
    const auto valueOf = [&](std::size_t i) { return static_cast<unsigned char>(i * 7 + grid.blockIndex() + 1); };
    const auto step = static_cast<std::size_t>(block.size());
    const auto rank = static_cast<std::size_t>(block.rank());
    for (std::size_t i = rank; i < args.bytes; i += step) shared[i] = valueOf(i);
    block.sync();
    unsigned long long right = 0;
    // What another thread wrote.
    for (std::size_t i = (rank + 1) % step; i < args.bytes; i += step) right += shared[i] == valueOf(i);
    atomicAdd(args.right, right);
#endif
  }
};

/// Each block counts itself in *arrived, and waits until it is `wanted`, up to `nanoseconds`. Those that see it count
/// themselves in *met. Its shared memory leaves no room for another block on the multiprocessor.
struct Meet {
  struct Args {
    std::size_t bytes;
    unsigned long long wanted;
    unsigned long long nanoseconds;
    unsigned long long* arrived;
    unsigned long long* met;
  };
  static constexpr int maxBlockThreads = 32;

  static std::size_t sharedBytes(const Args& args, LaunchShape /*shape*/) { return args.bytes; }

  template <SharedMemoryGrid GridType, class Source, class Sink>
  static MSCCLPP_INLINE void run(const GridType& grid, const Args& args, const Source&, const Sink&) {
#if defined(__CUDA_ARCH__)
    if (grid.block().rank() != 0) return;
    atomicAdd(args.arrived, 1ull);
    const auto begin = arch::nanoseconds();
    while (arch::nanoseconds() - begin < args.nanoseconds) {
      if (atomicAdd(args.arrived, 0ull) < args.wanted) continue;
      atomicAdd(args.met, 1ull);
      return;
    }
#endif
  }
};

struct Nothing {};

constexpr LaunchShape shape{3, 128};

std::size_t mostSharedBytes() {
  int most = 0;
  checkCuda(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), "cudaDeviceGetAttribute");
  return static_cast<std::size_t>(most);
}

}  // namespace

TEST_CASE("launch: dynamic shared memory of any size that the device has") {
  setDeviceOfRank(0);
  using Collective = FillSharedMemory<0>;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, std::size_t{48 * 1024}, std::size_t{48 * 1024 + 1},
                                  mostSharedBytes(), std::size_t{50'000}}) {
    CAPTURE(bytes);
    const GpuBuffers counter(1, sizeof(unsigned long long), 0);
    const Collective::Args args{bytes, reinterpret_cast<unsigned long long*>(counter.window().at(0))};
    CHECK(launch<Collective>(shape, nullptr, args, Nothing{}, Nothing{}) == cudaSuccess);
    checkCuda(cudaDeviceSynchronize(), "kernel");
    CHECK(counter.read<unsigned long long>(0)[0] == shape.blocks * bytes);
  }
}

TEST_CASE("launch: more shared memory than a block can have is an error, and launches nothing") {
  setDeviceOfRank(0);
  const GpuBuffers counter(1, sizeof(unsigned long long), 0);
  auto* const right = reinterpret_cast<unsigned long long*>(counter.window().at(0));
  CHECK(launch<FillSharedMemory<1>>(shape, nullptr, {mostSharedBytes() + 1, right}, Nothing{}, Nothing{}) ==
        cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaSuccess);
  checkCuda(cudaDeviceSynchronize(), "kernel");
  CHECK(counter.read<unsigned long long>(0)[0] == 0);
}

TEST_CASE("launch: a capture whose first launch needs much shared memory") {
  setDeviceOfRank(0);
  using Collective = FillSharedMemory<2>;
  const std::size_t bytes = 100'000;
  const GpuBuffers counter(1, sizeof(unsigned long long), 0);
  const Collective::Args args{bytes, reinterpret_cast<unsigned long long*>(counter.window().at(0))};
  const GpuStreams streams(1);
  checkCuda(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  const cudaError_t error = launch<Collective>(shape, streams[0], args, Nothing{}, Nothing{});
  cudaGraph_t graph = nullptr;
  checkCuda(cudaStreamEndCapture(streams[0], &graph), "cudaStreamEndCapture");
  CHECK(error == cudaSuccess);
  cudaGraphExec_t instance = nullptr;
  checkCuda(cudaGraphInstantiate(&instance, graph, 0), "cudaGraphInstantiate");
  for (int replay = 0; replay < 2; ++replay) checkCuda(cudaGraphLaunch(instance, streams[0]), "cudaGraphLaunch");
  checkCuda(cudaStreamSynchronize(streams[0]), "graph");
  CHECK(counter.read<unsigned long long>(0)[0] == 2 * shape.blocks * bytes);
  checkCuda(cudaGraphExecDestroy(instance), "cudaGraphExecDestroy");
  checkCuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

TEST_CASE("launch: how many kernels of a stream are resident at once") {
  setDeviceOfRank(0);
  int multiprocessors = 0;
  checkCuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
  for (const KernelStart start : {KernelStart::Early, KernelStart::InOrder}) {
    CAPTURE(static_cast<int>(start));
    const int resident = start == KernelStart::Early ? 2 : 1;
    const GpuBuffers counters(1, 4 * sizeof(unsigned long long), 0);
    auto* const counter = reinterpret_cast<unsigned long long*>(counters.window().at(0));
    const GpuStreams streams(1);
    const GpuStreams otherStreams(1);
    // Load the kernel.
    const Meet::Args none{mostSharedBytes(), 0, 0, counter + 2, counter + 3};
    CHECK(launch<Meet>({1, 32}, streams[0], none, Nothing{}, Nothing{}) == cudaSuccess);
    checkCuda(cudaStreamSynchronize(streams[0]), "kernel");
    // A block that waits for one that never comes, and behind it many that wait for it.
    const Meet::Args waits{mostSharedBytes(), ~0ull, 2'000'000'000, counter + 2, counter + 3};
    CHECK(launch<Meet>({1, 32}, streams[0], waits, Nothing{}, Nothing{}, start) == cudaSuccess);
    for (int i = 0; i < 10; ++i) {
      CHECK(launch<Meet>({1, 32}, streams[0], none, Nothing{}, Nothing{}, start) == cudaSuccess);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    // All other multiprocessors are free: this kernel needs all of them at once.
    const int others = multiprocessors - resident;
    const auto wanted = static_cast<unsigned long long>(others);
    const Meet::Args meets{mostSharedBytes(), wanted, 500'000'000, counter, counter + 1};
    CHECK(launch<Meet>({others, 32}, otherStreams[0], meets, Nothing{}, Nothing{}) == cudaSuccess);
    checkCuda(cudaDeviceSynchronize(), "kernels");
    CHECK(counters.read<unsigned long long>(0)[1] == wanted);
  }
}

TEST_CASE("launch: shapes outside the limits are errors") {
  setDeviceOfRank(0);
  const auto launchWith = [](LaunchShape wrong) {
    return launch<FillSharedMemory<1>>(wrong, nullptr, {0, nullptr}, Nothing{}, Nothing{});
  };
  CHECK(launchWith({0, 128}) == cudaErrorInvalidConfiguration);
  CHECK(launchWith({maxBlocks + 1, 128}) == cudaErrorInvalidConfiguration);
  CHECK(launchWith({1, 0}) == cudaErrorInvalidConfiguration);
  CHECK(launchWith({1, 33}) == cudaErrorInvalidConfiguration);
  CHECK(launchWith({1, 160}) == cudaErrorInvalidConfiguration);
}
