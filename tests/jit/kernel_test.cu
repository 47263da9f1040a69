// Kernels compiled at run time on GPUs: launches, checks of arguments, graphs, and an all-reduce whose source is text.
// The ranks are distributed round-robin over the GPUs.
#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/jit/collective.hpp"
#include "mscclpp/jit/kernel.hpp"
#include "mscclpp/jit/program.hpp"
#include "tests/backend/gpu.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

template <class Function>
std::string errorOf(const Function& function) {
  try {
    function();
    return "";
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::InvalidUsage);
    return error.what();
  }
}

float* floatsOf(const GpuBuffers& buffers, int rank) {
  return reinterpret_cast<float*>(buffers.window().at(rank));
}

jit::Program scaleProgram() {
  return jit::compile({.source = R"(
    template <class T>
    __global__ void scale(T* data, int count, T factor) {
      const int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < count) data[i] *= factor;
    }
  )",
                       .kernels = {"scale<float>", "scale<double>"}});
}

constexpr int ranks = 2;

}  // namespace

TEST_CASE("a kernel compiled at run time is launched, with arguments of the right types only") {
  constexpr int count = 1000;
  auto buffers = GpuBackend().allocate(1, count * sizeof(float), 0);
  buffers.write(0, std::vector<float>(count, 1.5f));
  float* data = floatsOf(buffers, 0);
  const auto program = scaleProgram();
  const auto kernel = program.kernel("scale<float>");
  CHECK(kernel.deviceId() == 0);
  CHECK(kernel.attributes().maxBlockThreads == 1024);
  CHECK(kernel.attributes().registers > 0);
  CHECK(kernel.attributes().staticSharedBytes == 0);
  kernel.launch({.shape = {4, 256}}, data, count, 2.0f);
  checkCuda(cudaDeviceSynchronize(), "kernel");
  CHECK(buffers.read<float>(0) == std::vector<float>(count, 3.0f));

  CHECK(errorOf([&] { program.kernel(); }).find("scale<double>") != std::string::npos);
  CHECK(errorOf([&] { program.kernel("scale<int>"); }).find("scale<int>") != std::string::npos);
  CHECK(errorOf([&] { kernel.launch({.shape = {4, 256}}, data, count); }).find("3 parameters") != std::string::npos);
  CHECK(errorOf([&] {
          kernel.launch({.shape = {4, 256}}, data, std::size_t{count}, 2.0f);
        }).find("argument 2 has 8") != std::string::npos);
  CHECK(errorOf([&] { kernel.launch({.shape = {4, 256}}, data, count, 2.0); }).find("argument 3") != std::string::npos);
  CHECK(errorOf([&] { kernel.launch({.shape = {4, 1025}}, data, count, 2.0f); }).find("1024") != std::string::npos);
  CHECK(errorOf([&] { kernel.launch({.shape = {0, 256}}, data, count, 2.0f); }) != "");
  checkCuda(cudaDeviceSynchronize(), "kernel");
  CHECK(buffers.read<float>(0) == std::vector<float>(count, 3.0f));
}

TEST_CASE("arguments in one buffer have the layout of the parameters") {
  struct Arguments {
    char first;
    int* to;
    short second;
    float third;
  };
  static_assert(offsetof(Arguments, third) == 20 && sizeof(Arguments) == 24);
  auto buffers = GpuBackend().allocate(1, 3 * sizeof(int), 0);
  const auto kernel = jit::compile({.source = R"(
    __global__ void store(char first, int* to, short second, float third) {
      to[0] = first, to[1] = second, to[2] = static_cast<int>(third);
    }
  )",
                                    .kernels = {"store"}})
                          .kernel();
  const Arguments arguments{7, reinterpret_cast<int*>(buffers.window().at(0)), -8, 9.0f};
  const auto bytes = std::as_bytes(std::span(&arguments, 1));
  kernel.launchPacked({.shape = {1, 1}}, bytes);
  checkCuda(cudaDeviceSynchronize(), "kernel");
  CHECK(buffers.read<int>(0) == std::vector<int>{7, -8, 9});

  const auto messageOf = [&](std::size_t size) {
    return errorOf([&] { kernel.launchPacked({.shape = {1, 1}}, bytes.first(size)); });
  };
  CHECK(messageOf(20).find("20 bytes, and its 4 parameters 24") != std::string::npos);
  const std::byte longer[32]{};
  CHECK(errorOf([&] { kernel.launchPacked({.shape = {1, 1}}, longer); }).find("32 bytes") != std::string::npos);
}

TEST_CASE("threads that made no CUDA call before launch kernels") {
  auto buffers = GpuBackend().allocate(1, sizeof(float), 0);
  buffers.write(0, std::vector<float>{1.0f});
  setDeviceOfRank(0);
  const auto kernel = scaleProgram().kernel("scale<float>");  // outlives its program
  for (int i = 0; i < 3; ++i) {
    std::thread([&] { kernel.launch({.shape = {1, 32}}, floatsOf(buffers, 0), 1, 2.0f); }).join();
  }
  checkCuda(cudaDeviceSynchronize(), "kernel");
  CHECK(buffers.read<float>(0).at(0) == 8.0f);
}

TEST_CASE("PTX is loaded too") {
  auto buffers = GpuBackend().allocate(1, sizeof(int), 0);
  const auto program = jit::compile(
      {.source = "__global__ void store(int* p) { *p = 7; }", .kernels = {"store"}, .architecture = "compute_80"});
  program.kernel().launch({.shape = {1, 1}}, reinterpret_cast<int*>(buffers.window().at(0)));
  checkCuda(cudaDeviceSynchronize(), "kernel");
  CHECK(buffers.read<int>(0).at(0) == 7);
}

TEST_CASE("a program that was compiled elsewhere is loaded by the names in its image") {
  auto buffers = GpuBackend().allocate(1, 3 * sizeof(float), 0);
  buffers.write(0, std::vector<float>(3, 2.0f));
  const auto compiled = scaleProgram();
  const std::string name = compiled.loweredName("scale<float>");
  const auto program = jit::makeProgram(compiled.image(), {name}, compiled.architecture());
  program.kernel().launch({.shape = {1, 32}}, floatsOf(buffers, 0), 3, 2.0f);
  checkCuda(cudaDeviceSynchronize(), "kernel");
  CHECK(buffers.read<float>(0) == std::vector<float>(3, 4.0f));
  CHECK_THROWS_AS(jit::makeProgram(compiled.image(), {"absent"}, "sm_90").kernel(), CuError);
}

TEST_CASE("a program for another GPU is an error that says so") {
  setDeviceOfRank(0);
  cudaDeviceProp properties;
  checkCuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  const char* other = properties.major == 8 ? "sm_90" : "sm_80";
  const auto program =
      jit::compile({.source = "__global__ void nothing() {}", .kernels = {"nothing"}, .architecture = other});
  CHECK(errorOf([&] { program.kernel(); }).find(other) != std::string::npos);
}

TEST_CASE("dynamic shared memory beyond the default") {
  constexpr std::size_t bytes = 64 * 1024;
  auto buffers = GpuBackend().allocate(1, sizeof(int), 0);
  const auto kernel = jit::compile({.source = R"(
    __global__ void last(int* out, int words) {
      extern __shared__ int memory[];
      for (int i = threadIdx.x; i < words; i += blockDim.x) memory[i] = i;
      __syncthreads();
      if (threadIdx.x == 0) *out = memory[words - 1];
    }
  )",
                                    .kernels = {"last"}})
                          .kernel();
  kernel.launch({.shape = {1, 128}, .sharedBytes = bytes}, reinterpret_cast<int*>(buffers.window().at(0)),
                static_cast<int>(bytes / sizeof(int)));
  checkCuda(cudaDeviceSynchronize(), "kernel");
  CHECK(buffers.read<int>(0).at(0) == static_cast<int>(bytes / sizeof(int)) - 1);
}

TEST_CASE("a graph captures the launch") {
  constexpr int count = 64;
  auto buffers = GpuBackend().allocate(1, count * sizeof(float), 0);
  buffers.write(0, std::vector<float>(count, 1.0f));
  const auto program = scaleProgram();
  const GpuStreams streams(1);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  checkCuda(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal), "begin");
  program.kernel("scale<float>").launch({.shape = {1, count}, .stream = streams[0]}, floatsOf(buffers, 0), count, 2.0f);
  checkCuda(cudaStreamEndCapture(streams[0], &graph), "end");
  checkCuda(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  for (int i = 0; i < 3; ++i) checkCuda(cudaGraphLaunch(executable, streams[0]), "launch");
  checkCuda(cudaStreamSynchronize(streams[0]), "kernel");
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  CHECK(buffers.read<float>(0) == std::vector<float>(count, 8.0f));
}

TEST_CASE("an all-reduce whose source functor is text") {
  using Collective =
      AllReduce<float, Sum, AllReduceConfig{.protocol = Protocol::LL16, .pattern = Pattern::TwoShot, .ranks = ranks}>;
  const auto program =
      jit::compileCollective({.text = R"(
#include <mscclpp/collective/all_reduce.hpp>
struct Scaled {
  mscclpp::ArraySource<float> input;
  float factor;
  MSCCLPP_DEVICE mscclpp::Pack<float> operator()(std::size_t first, int valid) const {
    auto pack = input(first, valid);
    for (int i = 0; i < mscclpp::packSize<float>; ++i) pack[i] *= factor;
    return pack;
  }
};
)",
                              .collective = "AllReduce<float, Sum, AllReduceConfig{.protocol = "
                                            "Protocol::LL16, .pattern = Pattern::TwoShot, .ranks = 2}>",
                              .source = "Scaled",
                              .sink = "ArraySink<float>"});
  // What the host knows of the functor: its layout.
  struct Scaled {
    ArraySource<float> input;
    float factor;
  };

  constexpr std::size_t count = 10'001;
  constexpr int calls = 5;
  const auto layout = Collective::scratchFor(count, ranks);
  GpuBackend backend;
  auto scratch = backend.allocate(ranks, layout.windowBytes(), Collective::Scratch::initialByte);
  auto epochs = backend.allocate(ranks, epochWords * sizeof(std::uint64_t), 0);
  auto inputs = backend.allocate(ranks, count * sizeof(float), 0);
  auto outputs = backend.allocate(ranks, count * sizeof(float), 0xff);
  std::vector<float> wanted(count);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<float> input(count);
    for (std::size_t i = 0; i < count; ++i) {
      input[i] = static_cast<float>(i % 97) + static_cast<float>(rank);
      wanted[i] += input[i] * 0.5f;
    }
    inputs.write(rank, input);
    epochs.write(rank, std::vector<std::uint64_t>(epochWords, 1));
  }
  std::vector<jit::Kernel> kernels;
  for (int rank = 0; rank < ranks; ++rank) {
    setDeviceOfRank(rank);
    kernels.push_back(program.kernel());
    CHECK(kernels.back().attributes().maxBlockThreads >= Collective::maxBlockThreads);
  }
  const GpuStreams streams(ranks);
  for (int call = 0; call < calls; ++call) {
    for (int rank = 0; rank < ranks; ++rank) {
      Collective::Args args{};
      args.team = decltype(args.team)(rank, ranks);
      for (int r = 0; r < ranks; ++r) args.window.base[r] = scratch.window().at(r);
      args.epochs = {reinterpret_cast<std::uint64_t*>(epochs.window().at(rank))};
      args.scratch = layout;
      args.count = count;
      args.wait = backend.wait();
      const LaunchShape shape{4, 128};
      REQUIRE(Collective::accepts(args, shape));
      kernels[static_cast<std::size_t>(rank)].launch({.shape = shape, .stream = streams[rank], .overlapPrevious = true},
                                                     args, Scaled{ArraySource<float>(floatsOf(inputs, rank)), 0.5f},
                                                     ArraySink<float>(floatsOf(outputs, rank)));
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    setDeviceOfRank(rank);
    checkCuda(cudaStreamSynchronize(streams[rank]), "kernel");
  }
  CHECK(backend.control()->expired == 0);
  for (int rank = 0; rank < ranks; ++rank) CHECK(outputs.read<float>(rank) == wanted);
}
