// The overhead of the templates: times the library's kernels and the hand-written baseline alternately, on 4 GPUs of
// one process, with the same launch shapes.
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "hand_written.cuh"
#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/kernel.cuh"

namespace {

using namespace mscclpp;

void check(cudaError_t error, int line) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "control.cu:%d: %s\n", line, cudaGetErrorString(error));
  std::exit(1);
}
#define CHECK(call) check(call, __LINE__)  // a macro for the line number

constexpr int ranks = handwritten::ranks;
constexpr std::size_t maxBytes = 16u << 20;
constexpr std::size_t windowBytes = 256u << 20;

struct Gpu {
  std::byte* window;
  std::uint64_t* epochs;
  std::byte* input;
  std::byte* output;
  cudaStream_t stream;
};
Gpu gpus[ranks];

using Enqueue = std::function<cudaError_t(int rank)>;

template <Protocol protocol, Pattern pattern>
Enqueue library(std::size_t bytes, LaunchShape shape) {
  using Collective = AllReduce<bf16, Sum, AllReduceConfig{protocol, pattern, ranks}>;
  return [=](int rank) {
    typename Collective::Args args{.team = {rank, ranks},
                                   .window = {},
                                   .epochs = {gpus[rank].epochs},
                                   .scratch = Collective::scratchFor(bytes / sizeof(bf16), ranks),
                                   .count = bytes / sizeof(bf16),
                                   .wait = {nullptr, 10'000'000'000u}};
    for (int r = 0; r < ranks; ++r) args.window.base[r] = gpus[r].window;
    return launch<Collective>(shape, gpus[rank].stream, args,
                              AlignedArraySource<bf16>(reinterpret_cast<const bf16*>(gpus[rank].input)),
                              AlignedArraySink<bf16>(reinterpret_cast<bf16*>(gpus[rank].output)));
  };
}

template <class Kernel>
Enqueue handWritten(Kernel kernel, std::size_t bytes, LaunchShape shape) {
  return [=](int rank) {
    handwritten::Args args{};
    for (int r = 0; r < ranks; ++r) args.window[r] = reinterpret_cast<char*>(gpus[r].window);
    args.epochs = reinterpret_cast<unsigned long long*>(gpus[rank].epochs);
    args.capacityPacks = bytes / 16;
    args.packs = bytes / 16;
    args.rank = rank;
    cudaLaunchAttribute overlap[1] = {};
    overlap[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap[0].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
    config.blockDim = dim3(static_cast<unsigned>(shape.threads));
    config.stream = gpus[rank].stream;
    config.attrs = overlap;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, args, reinterpret_cast<const uint4*>(gpus[rank].input),
                              reinterpret_cast<uint4*>(gpus[rank].output));
  };
}

/// Medians of `repeats` graph replays of 100 calls each, alternating between the two; microseconds per call, maximum
/// over the ranks. The outputs of the two must be bitwise equal.
struct Comparison {
  double micros[2];
  bool identical;
};

Comparison compare(const Enqueue (&implementations)[2], std::size_t bytes, int initialByte) {
  constexpr int calls = 100;
  constexpr int repeats = 15;
  std::barrier barrier(ranks);
  std::vector<double> medians[2];
  for (auto& each : medians) each.resize(ranks);
  std::vector<char> identical(ranks, 1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      CHECK(cudaSetDevice(rank));
      const Gpu& gpu = gpus[rank];
      const std::vector<std::uint64_t> first(epochWords, 1);
      CHECK(cudaMemcpy(gpu.epochs, first.data(), first.size() * 8, cudaMemcpyHostToDevice));
      CHECK(cudaMemset(gpu.window, initialByte, windowBytes));
      CHECK(cudaDeviceSynchronize());
      barrier.arrive_and_wait();
      cudaGraphExec_t graphs[2];
      cudaGraphExec_t warmupGraphs[2];
      std::vector<std::byte> results[2];
      for (int c = 0; c < 2; ++c) {
        const auto capture = [&](int n) {
          cudaGraph_t graph;
          cudaGraphExec_t executable;
          CHECK(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeThreadLocal));
          for (int i = 0; i < n; ++i) CHECK(implementations[c](rank));
          CHECK(cudaStreamEndCapture(gpu.stream, &graph));
          CHECK(cudaGraphInstantiate(&executable, graph, 0));
          CHECK(cudaGraphDestroy(graph));
          CHECK(cudaGraphUpload(executable, gpu.stream));
          return executable;
        };
        warmupGraphs[c] = capture(10);
        graphs[c] = capture(calls);
        CHECK(cudaStreamSynchronize(gpu.stream));
        barrier.arrive_and_wait();
        CHECK(cudaMemset(gpu.output, 0x5a, bytes));
        CHECK(cudaGraphLaunch(warmupGraphs[c], gpu.stream));
        CHECK(cudaStreamSynchronize(gpu.stream));
        results[c].resize(bytes);
        CHECK(cudaMemcpy(results[c].data(), gpu.output, bytes, cudaMemcpyDeviceToHost));
      }
      identical[static_cast<std::size_t>(rank)] = results[0] == results[1];
      cudaEvent_t start, end;
      CHECK(cudaEventCreate(&start));
      CHECK(cudaEventCreate(&end));
      std::vector<double> times[2];
      for (int repeat = 0; repeat < repeats; ++repeat) {
        for (int c = 0; c < 2; ++c) {
          barrier.arrive_and_wait();
          CHECK(cudaGraphLaunch(warmupGraphs[c], gpu.stream));
          CHECK(cudaEventRecord(start, gpu.stream));
          CHECK(cudaGraphLaunch(graphs[c], gpu.stream));
          CHECK(cudaEventRecord(end, gpu.stream));
          CHECK(cudaStreamSynchronize(gpu.stream));
          float ms = 0;
          CHECK(cudaEventElapsedTime(&ms, start, end));
          times[c].push_back(1000.0 * ms / calls);
        }
      }
      for (int c = 0; c < 2; ++c) {
        std::sort(times[c].begin(), times[c].end());
        medians[c][static_cast<std::size_t>(rank)] = times[c][repeats / 2];
        CHECK(cudaGraphExecDestroy(warmupGraphs[c]));
        CHECK(cudaGraphExecDestroy(graphs[c]));
      }
      CHECK(cudaEventDestroy(start));
      CHECK(cudaEventDestroy(end));
    });
  }
  for (auto& thread : threads) thread.join();
  const auto worst = [&](int c) { return *std::max_element(medians[c].begin(), medians[c].end()); };
  return {{worst(0), worst(1)}, std::all_of(identical.begin(), identical.end(), [](char s) { return s != 0; })};
}

}  // namespace

int main() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < ranks) {
    std::fprintf(stderr, "control: needs %d GPUs\n", ranks);
    return 77;
  }
  for (int r = 0; r < ranks; ++r) {
    CHECK(cudaSetDevice(r));
    for (int p = 0; p < ranks; ++p) {
      if (p != r) CHECK(cudaDeviceEnablePeerAccess(p, 0));
    }
    Gpu& gpu = gpus[r];
    CHECK(cudaMalloc(&gpu.window, windowBytes));
    CHECK(cudaMalloc(&gpu.epochs, epochWords * 8));
    CHECK(cudaMalloc(&gpu.input, maxBytes));
    CHECK(cudaMalloc(&gpu.output, maxBytes));
    CHECK(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking));
    std::vector<bf16> input(maxBytes / sizeof(bf16));
    std::uint32_t state = 12345u + static_cast<std::uint32_t>(r);
    for (auto& x : input) {
      state = state * 1664525u + 1013904223u;
      x = __float2bfloat16(static_cast<float>(state >> 8) / (1 << 23) - 1.0f);
    }
    CHECK(cudaMemcpy(gpu.input, input.data(), maxBytes, cudaMemcpyHostToDevice));
  }
  std::printf("%-18s %10s %9s %12s %12s %8s %s\n", "kernel", "bytes", "shape", "library us", "by hand us", "ratio",
              "same bits");
  bool failed = false;
  const auto report = [&](const char* name, std::size_t bytes, LaunchShape shape, const Enqueue& ours,
                          const Enqueue& theirs, int byte) {
    const Enqueue implementations[2] = {ours, theirs};
    const Comparison comparison = compare(implementations, bytes, byte);
    std::printf("%-18s %10zu %4dx%-4d %12.2f %12.2f %8.3f %s\n", name, bytes, shape.blocks, shape.threads,
                comparison.micros[0], comparison.micros[1], comparison.micros[0] / comparison.micros[1],
                comparison.identical ? "yes" : "NO");
    std::fflush(stdout);
    failed |= !comparison.identical;
  };
  for (const auto& [bytes, shape] : {std::pair{std::size_t{1} << 10, LaunchShape{1, 64}},
                                     {std::size_t{16} << 10, {16, 64}},
                                     {std::size_t{64} << 10, {64, 64}}}) {
    report("one-shot LL16", bytes, shape, library<Protocol::LL16, Pattern::OneShot>(bytes, shape),
           handWritten(handwritten::oneShotLL16, bytes, shape), 0);
  }
  for (const auto& [bytes, shape] : {std::pair{std::size_t{256} << 10, LaunchShape{64, 64}},
                                     {std::size_t{1} << 20, {128, 128}},
                                     {std::size_t{4} << 20, {128, 512}},
                                     {std::size_t{16} << 20, {128, 512}}}) {
    report("two-shot sentinel", bytes, shape, library<Protocol::Sentinel, Pattern::TwoShot>(bytes, shape),
           handWritten(handwritten::twoShotSentinel, bytes, shape), Sentinel::initialByte);
  }
  return failed ? 1 : 0;
}
