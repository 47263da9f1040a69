// The library's algorithms as objects on GPUs, one process and GPU per rank.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "every_algorithm.hpp"
#include "mscclpp/algorithm.hpp"
#include "mscclpp/host/base/logger.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr int timeoutSeconds = 60;

int gpus() {
  int count = 0;
  MSCCLPP_CUDATHROW(cudaGetDeviceCount(&count));
  return std::min(count, 8);
}

/// This process as a rank on its GPU.
struct GpuRank {
  int rank;
  int ranks;
  std::shared_ptr<TcpBootstrap> bootstrap;
  std::shared_ptr<Communicator> communicator;
  AlgorithmCollection collection;

  GpuRank() {
    ::alarm(timeoutSeconds);  // terminates this process in any case
    const auto sockets = bootstrapOfProcess();
    rank = sockets->getRank();
    ranks = sockets->getNranks();
    MSCCLPP_CUDATHROW(cudaSetDevice(rank));
    bootstrap = tcpBootstrapOver(*sockets);
    communicator = std::make_shared<Communicator>(bootstrap);
    collection = collective::AlgorithmCollectionBuilder::getInstance()->buildDefaultAlgorithms(0, 0, 0, 0, rank);
  }

  std::shared_ptr<Algorithm> find(const std::string& collective, const std::string& name) const {
    return collection.getAlgorithmsByCollective(collective).at(name);
  }
};

template <class T>
detail::UniqueGpuPtr<T> copyToGpu(const std::vector<T>& values) {
  auto memory = detail::gpuCallocUnique<T>(values.size());
  gpuMemcpy(memory.get(), values.data(), values.size(), cudaMemcpyHostToDevice);
  return memory;
}

std::string lastError;  // of the log

}  // namespace

TEST_CASE("every algorithm of every collective") {
  runAsProcesses(gpus(), "a rank that executes every algorithm", std::chrono::seconds(timeoutSeconds));
}
TEST_CASE("a rank that executes every algorithm" * doctest::skip()) {
  const GpuRank rank;
  setLogHandler([](LogLevel, LogSubsystem, const std::string& message) { lastError = message; });
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  // LL128 needs links that keep a line whole.
  const Collectives all(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
  const auto names = all.algorithms();
  const bool hasLl128 = std::find(names.begin(), names.end(), "one_shot_ll128") != names.end();
  const auto collectives =
      checkEveryAlgorithm(rank.collection, rank.rank, rank.ranks, {1, 4099, 60'001}, [&](Algorithm& algorithm) {
        return [&](CollectiveCall call, Bytes& from, Bytes* to) {
          const auto inputAt = reinterpret_cast<std::size_t>(call.input);
          const auto outputAt = reinterpret_cast<std::size_t>(call.output);
          const auto source = copyToGpu(from);
          const auto target = to == nullptr ? nullptr : copyToGpu(*to);
          if (call.input != nullptr) call.input = source.get() + inputAt;
          if (call.output != nullptr) call.output = (to == nullptr ? source : target).get() + outputAt;
          call.stream = stream;
          if (!hasLl128 && algorithm.name().ends_with("ll128")) {
            CHECK(executeCall(algorithm, rank.communicator, rank.ranks, call) == CommResult::CommInvalidArgument);
            CHECK(lastError.find("is not set up") != std::string::npos);
            CHECK(executeCall(*rank.find(algorithm.collective(), "mscclpp_" + algorithm.collective()),
                              rank.communicator, rank.ranks, call) == CommResult::CommSuccess);
          } else {
            CHECK(executeCall(algorithm, rank.communicator, rank.ranks, call) == CommResult::CommSuccess);
          }
          MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
          gpuMemcpy(from.data(), source.get(), from.size(), cudaMemcpyDeviceToHost);
          if (to != nullptr) gpuMemcpy(to->data(), target.get(), to->size(), cudaMemcpyDeviceToHost);
        };
      });
  CHECK(collectives.size() == 9);
  rank.bootstrap->barrier();
  rank.find("allreduce", "mscclpp_allreduce")->reset();
  rank.bootstrap->barrier();
  setLogHandler({});
}

TEST_CASE("captured in a graph, after the first call only") {
  runAsProcesses(gpus(), "a rank that captures an algorithm", std::chrono::seconds(timeoutSeconds));
}
TEST_CASE("a rank that captures an algorithm" * doctest::skip()) {
  const GpuRank rank;
  setLogHandler([](LogLevel, LogSubsystem, const std::string& message) { lastError = message; });
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  const std::size_t count = 10'000;
  const auto input = copyToGpu(std::vector<float>(count, 1.0f));
  const auto output = detail::gpuCallocUnique<float>(count);
  const auto algorithm = rank.collection.selectAlgorithm({.collective = "allreduce", .dtype = DataType::FLOAT32});
  REQUIRE(algorithm != nullptr);
  const auto execute = [&] {
    return algorithm->execute(rank.communicator, input.get(), output.get(), count * 4, count * 4, DataType::FLOAT32,
                              ReduceOp::SUM, stream, nullptr);
  };
  cudaGraph_t graph = nullptr;
  MSCCLPP_CUDATHROW(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(execute() == CommResult::CommInvalidUsage);
  CHECK(lastError.find("before the capture begins") != std::string::npos);
  MSCCLPP_CUDATHROW(cudaStreamEndCapture(stream, &graph));  // the capture is still valid
  MSCCLPP_CUDATHROW(cudaGraphDestroy(graph));

  CHECK(execute() == CommResult::CommSuccess);
  MSCCLPP_CUDATHROW(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(execute() == CommResult::CommSuccess);
  MSCCLPP_CUDATHROW(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t replay = nullptr;
  MSCCLPP_CUDATHROW(cudaGraphInstantiate(&replay, graph, 0));
  for (int i = 0; i < 10; ++i) {
    gpuMemset(output.get(), 0, count * 4);
    MSCCLPP_CUDATHROW(cudaGraphLaunch(replay, stream));
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
    std::vector<float> result(count);
    gpuMemcpy(result.data(), output.get(), count, cudaMemcpyDeviceToHost);
    CHECK(result == std::vector<float>(count, static_cast<float>(rank.ranks)));
  }
  MSCCLPP_CUDATHROW(cudaGraphExecDestroy(replay));
  MSCCLPP_CUDATHROW(cudaGraphDestroy(graph));
  rank.bootstrap->barrier();
  setLogHandler({});
}
