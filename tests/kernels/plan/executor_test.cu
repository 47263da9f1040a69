// Plans on GPUs, one process per rank: specialised and interpreted, enqueued and replayed in graphs.
#include <chrono>
#include <functional>
#include <vector>

#include "executor_cases.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/kernel.cuh"
#include "tests/kernels/gpu_rank.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

/// The memory of a rank's calls, of elements T.
template <class T>
class GpuCalls {
 public:
  GpuCalls(const GpuRank& rank, cudaStream_t stream, std::size_t most)
      : rank_(rank), stream_(stream), most_(most), in_(most * sizeof(T)), out_(most * sizeof(T)) {}

  /// A call at an offset that differs among the ranks, made by `enqueue(execute)`, `times` times. The whole memory of
  /// the output is compared.
  template <class Op = Sum>
  void check(Executor& executor, const ExecutionPlan& plan, std::size_t count, unsigned seed, bool inGraph,
             PacketType packets = PacketType::LL16) {
    CAPTURE(count);
    const std::size_t offset = (seed % 3 + static_cast<std::size_t>(rank_.rank)) * sizeof(T);
    const std::size_t bytes = most_ * sizeof(T);
    auto* const to = plan.isInPlace() ? in_.data() : out_.data();
    const auto execute = [&](std::size_t outputBytes) {
      executor.execute(rank_.rank, in_.data() + offset, to + offset, count * sizeof(T), outputBytes, dataTypeOf<T>,
                       plan, stream_, packets, valueOf<Op>);
    };
    std::size_t outputBytes = 0;
    const auto prepare = [&](unsigned of) {
      const auto message = planMessage<T, Op>(plan.plan(), rank_.rank, count, of);
      outputBytes = message.expected.size() * sizeof(T);
      expected_.assign(bytes, static_cast<std::byte>(poisonByte));
      std::memcpy(expected_.data() + offset, message.expected.data(), outputBytes);
      gpuMemset(to, poisonByte, bytes);
      gpuMemcpy(in_.data() + offset, reinterpret_cast<const char*>(message.input.data()), count * sizeof(T),
                cudaMemcpyHostToDevice);
      rank_.sockets->barrier();
    };
    const auto compare = [&] {
      MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream_));
      executor.check();
      rank_.sockets->barrier();
      std::vector<std::byte> result(bytes);
      gpuMemcpy(reinterpret_cast<char*>(result.data()), to, bytes, cudaMemcpyDeviceToHost);
      CHECK(std::memcmp(expected_.data(), result.data(), bytes) == 0);
    };
    prepare(seed);
    execute(outputBytes);
    compare();
    if (!inGraph) return;
    const Graph graph(stream_, [&] { execute(outputBytes); });
    for (unsigned replay = 1; replay < 4; ++replay) {
      prepare(seed + replay);
      graph.launch();
      compare();
    }
  }

 private:
  const GpuRank& rank_;
  cudaStream_t stream_;
  std::size_t most_;
  GpuBuffer<char> in_;
  GpuBuffer<char> out_;
  std::vector<std::byte> expected_;
};

template <int rank>
__global__ void fusedKernel(plan::ExecutionArgs args, GridBarrier* barrier, float* input, float* output,
                            std::size_t count, float value) {
  produceReduceDouble<rank>(gpu::Grid(), args, barrier, input, output, count, value);
}

struct Stream {
  Stream() { MSCCLPP_CUDATHROW(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream); }
  cudaStream_t stream = nullptr;
};

}  // namespace

TEST_CASE("plans on GPUs") {
  runOnAllGpus("plans on GPUs: a rank", -1, 240);
}
TEST_CASE("plans on GPUs: a rank" * doctest::skip()) {
  const GpuRank rank(240);
  const Stream stream;
  for (const PlanCode code : {PlanCode::Interpreted, PlanCode::Specialised}) {
    CAPTURE(static_cast<int>(code));
    Executor executor(rank.communicator, 32 << 20, DeviceType::GPU, code);
    GpuCalls<float> calls(rank, stream.stream, 1 << 20);
    unsigned seed = 0;
    for (const plan::SamplePlan& sample : plan::samplePlans(rank.ranks)) {
      CAPTURE(sample.name);
      const ExecutionPlan plan = executionPlan(sample.plan, rank.rank, sample.name);
      for (const std::size_t count : {1, 37, 5003, 100000}) {
        ++seed;
        calls.check(executor, plan, count, seed, count == 5003, seed % 2 == 0 ? PacketType::LL16 : PacketType::LL8);
      }
      CHECK(executor.isSpecialised(plan) == (code == PlanCode::Specialised));
    }
    const auto ports = executionPlan(plan::twoShotPlan(rank.ranks, 2, 0, plan::Access::Port), rank.rank, "ports");
    for (const std::size_t count : {10, 5003}) calls.check(executor, ports, count, ++seed, true);
    const auto longest = executionPlan(plan::longPlan(rank.ranks, 2000, 1000), rank.rank, "long");
    calls.check(executor, longest, 5003, ++seed, true);
    // More blocks than a GPU has multiprocessors; then what was set up before, again.
    const auto wide = executionPlan(plan::oneShotPacketPlan(rank.ranks, 200), rank.rank, "wide");
    CHECK_THROWS_WITH_AS(calls.check(executor, wide, 5003, ++seed, false), doctest::Contains("it has 200 blocks"),
                         Error);
    calls.check(executor, longest, 5003, ++seed, true);
    calls.check(executor, executionPlan(plan::oneShotPacketPlan(rank.ranks, 100), rank.rank, "100 blocks"), 5003,
                ++seed, true);
    rank.sockets->barrier();
  }
  rank.report("plans, specialised and interpreted, in graphs");
}

TEST_CASE("element types of plans on GPUs") {
  runOnAllGpus("element types of plans on GPUs: a rank", -1, 240);
}
TEST_CASE("element types of plans on GPUs: a rank" * doctest::skip()) {
  const GpuRank rank(240);
  const Stream stream;
  Executor executor(rank.communicator, 32 << 20, DeviceType::GPU, PlanCode::Interpreted);
  const ExecutionPlan plan = executionPlan(plan::twoShotPacketPlan(rank.ranks), rank.rank);
  unsigned seed = 0;
  const auto check = [&]<class T>(T) {
    GpuCalls<T> calls(rank, stream.stream, 1 << 12);
    calls.template check<Sum>(executor, plan, 777, ++seed, false);
    calls.template check<Max>(executor, plan, 777, ++seed, false);
  };
  check(std::int8_t{});
  check(f16{});
  check(bf16{});
  check(f8e4m3{});
  check(f8e5m2{});
  check(double{});
  check(std::uint64_t{});
  rank.sockets->barrier();
}

TEST_CASE("averages of plans on GPUs") {
  runOnAllGpus("averages of plans on GPUs: a rank", -1, 240);
}
TEST_CASE("averages of plans on GPUs: a rank" * doctest::skip()) {
  const GpuRank rank(240);
  const Stream stream;
  unsigned seed = 0;
  for (const PlanCode code : {PlanCode::Interpreted, PlanCode::Specialised}) {
    CAPTURE(static_cast<int>(code));
    Executor executor(rank.communicator, 32 << 20, DeviceType::GPU, code);
    GpuCalls<double> calls(rank, stream.stream, 1 << 14);
    for (const plan::Plan& sums : {plan::twoShotPlan(rank.ranks, 2), plan::twoShotPacketPlan(rank.ranks)}) {
      const ExecutionPlan plan = executionPlan(sums, rank.rank);
      for (const std::size_t count : {1, 37, 5003}) {
        calls.check<Average>(executor, plan, count, ++seed, count == 5003);
        calls.check<Sum>(executor, plan, count, ++seed, false);
      }
    }
    rank.sockets->barrier();
  }
  rank.report("averages of plans, specialised and interpreted, beside sums");
}

TEST_CASE("GPUs: a plan that is a constant in a kernel of the caller's") {
  runAsProcesses(2, "GPUs: a plan that is a constant in a kernel of the caller's: a rank",
                 std::chrono::seconds(timeoutSeconds), -1);
}
TEST_CASE("GPUs: a plan that is a constant in a kernel of the caller's: a rank" * doctest::skip()) {
  const GpuRank rank;
  const Stream stream;
  Executor executor(rank.communicator, 32 << 20, DeviceType::GPU);
  const ExecutionPlan plan = executionPlan(constantTwoShot(), rank.rank);
  const GpuBuffer<float> input(5003), output(5003);
  const GpuBuffer<GridBarrier> barrier(1);
  gpuMemset(barrier.data(), 0, barrier.bytes());
  float value = 0;
  const auto execute = [&] {
    executor.execute(rank.rank, input.data(), output.data(), input.bytes(), output.bytes(), DataType::FLOAT32, plan,
                     stream.stream, [&](const PlanKernel& kernel) {
                       plan::withStaticRank<ConstantTwoShot>(rank.rank, [&]<int own>() {
                         fusedKernel<own><<<kernel.blocks, kernel.threads, 0, kernel.stream>>>(
                             kernel.args, barrier.data(), static_cast<float*>(kernel.input),
                             static_cast<float*>(kernel.output), input.nelems(), value + static_cast<float>(own));
                       });
                       MSCCLPP_CUDATHROW(cudaGetLastError());
                     });
  };
  const auto compare = [&] {
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream.stream));
    executor.check();
    std::vector<float> result(output.nelems());
    gpuMemcpy(result.data(), output.data(), result.size());
    CHECK(result == doubledSums(result.size(), value));
    gpuMemset(output.data(), poisonByte, output.bytes());
  };
  for (int call = 0; call < 5; ++call) {
    value = static_cast<float>(call);
    execute();
    compare();
  }
  const Graph graph(stream.stream, execute);
  for (int replay = 0; replay < 3; ++replay) {
    graph.launch();
    compare();
  }
  rank.sockets->barrier();
  rank.report("a plan in a kernel of the caller's, also in a graph");
}
