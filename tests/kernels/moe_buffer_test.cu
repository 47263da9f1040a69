// The compiled dispatches and combines on GPUs, one process and GPU per rank; also in graphs.
#include "gpu_rank.cuh"
#include "moe_buffer_cases.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

MoeMemory gpuMemory() {
  return {DeviceType::GPU,
          [](std::size_t bytes) {
            return std::shared_ptr<void>(detail::gpuCallocUnique<std::byte>(bytes).release(),
                                         [](void* memory) { cudaFree(memory); });
          },
          [](void* to, const void* from, std::size_t bytes) {
            MSCCLPP_CUDATHROW(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
          },
          [] { MSCCLPP_CUDATHROW(cudaDeviceSynchronize()); }};
}

}  // namespace

TEST_CASE("buffers of every format on GPUs") {
  runOnAllGpus("a rank with buffers of every format");
}
TEST_CASE("a rank with buffers of every format" * doctest::skip()) {
  GpuRank rank;
  for (const auto format : {moe::RowFormat::Bf16, moe::RowFormat::Fp8, moe::RowFormat::QuantiseBf16}) {
    checkMoeBuffer(*rank.communicator, gpuMemory(), moeConfig(rank.ranks, format));
    moe::BufferConfig large = moeConfig(rank.ranks, format);
    large.maxTokens = 200;
    large.maxLowLatencyTokens = 64;
    large.topk = 8;
    large.experts = 256 / rank.ranks * rank.ranks;
    large.hidden = 7168;
    large.blocks = large.lowLatencyBlocks = 0;
    checkMoeBuffer(*rank.communicator, gpuMemory(), large);
    large.blocks = 16;
    large.bulkCopies = true;
    large.combineSendingBlocks = 5;
    checkMoeBuffer(*rank.communicator, gpuMemory(), large);
  }
  for (const bool bulkCopies : {false, true}) {
    moe::BufferConfig odd = moeConfig(rank.ranks, moe::RowFormat::Bf16);
    odd.hidden = 5128;  // an odd number of packs
    odd.bulkCopies = bulkCopies;
    odd.blocks += rank.rank;  // which may differ
    checkMoeBuffer(*rank.communicator, gpuMemory(), odd);
  }
  rank.bootstrap->barrier();
}

TEST_CASE("wrong arguments, a wrong order of calls and an output that is too small on GPUs") {
  runOnAllGpus("a rank with wrong calls");
}
TEST_CASE("a rank with wrong calls" * doctest::skip()) {
  GpuRank rank;
  checkMoeMisuse(*rank.communicator, gpuMemory());
  checkOtherHandles(*rank.communicator, gpuMemory());
  checkSmallMoeOutput(*rank.communicator, gpuMemory());
  rank.bootstrap->barrier();
}

TEST_CASE("dispatch and combine in replayed graphs") {
  runOnAllGpus("a rank with graphs of dispatch and combine");
}
TEST_CASE("a rank with graphs of dispatch and combine" * doctest::skip()) {
  GpuRank rank;
  const MoeMemory memory = gpuMemory();
  const moe::BufferConfig config = moeConfig(rank.ranks, moe::RowFormat::Bf16);
  moe::Buffer buffer(*rank.communicator, DeviceType::GPU, config);
  const MoeTokens own(config, config.maxLowLatencyTokens, rank.rank, 9);
  const auto rows = memory.of(own.rows), experts = memory.of(own.experts), weights = memory.of(own.weights);
  const auto capacity = std::max(buffer.largestCapacity(), buffer.lowLatencyCapacity());
  const auto received = memory.allocate(std::size_t{capacity} * config.hidden * 2);
  const auto output = memory.allocate(own.rows.size() * 2 + 16);
  const auto words = memory.allocate(1024);
  auto* const counts = static_cast<std::uint32_t*>(words.get());
  const moe::Tokens tokens{rows.get(), nullptr, static_cast<std::int64_t*>(experts.get()),
                           static_cast<float*>(weights.get()), own.count};
  const moe::ExpertBatch batch{received.get(), nullptr, counts, counts + 64, nullptr, capacity};
  moe::DispatchHandle handle = buffer.makeHandle();
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  // The experts' results are their inputs: the sum of a token's weights times the token.
  const Graph graph(stream, [&] {
    const auto receive = buffer.lowLatencyDispatch(tokens, batch, handle, stream, true);
    receive();
    buffer.lowLatencyCombine(received.get(), output.get(), handle, stream);
    buffer.dispatch(tokens, batch, handle, stream);
    buffer.combine(received.get(), output.get(), handle, stream);
  });
  for (int replay = 0; replay < 200; ++replay) {
    MSCCLPP_CUDATHROW(cudaMemsetAsync(output.get(), 0xff, own.rows.size() * 2 + 16, stream));
    graph.launch();
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
    buffer.check();
    const auto sums = memory.read<bf16>(output, own.rows.size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      double weight = 0;
      for (std::size_t j = i / config.hidden * 3; j < i / config.hidden * 3 + 3; ++j) {
        if (own.experts[j] >= 0) weight += static_cast<double>(own.weights[j]);
      }
      const double wanted = weight * static_cast<double>(widen<bf16>(own.rows[i]));
      REQUIRE(std::fabs(static_cast<double>(widen<bf16>(sums[i])) - wanted) <= std::fabs(wanted) / 60 + 1e-3);
    }
  }
  rank.bootstrap->barrier();
}
