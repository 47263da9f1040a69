// Compiled GEMMs with a collective inside, of several layers and beside other objects, one process and GPU per rank.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/gemm/cublas.hpp"
#include "kernels/gemm/fused_gemm.hpp"
#include "kernels/gemm/shared_cublas.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "mscclpp/kernels/fused_gemms.hpp"
#include "mscclpp/kernels/moe_buffer.hpp"
#include "tests/kernels/checked_calls.cuh"
#include "tests/kernels/gpu_rank.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

/// Elements of matrices whose products and sums of up to 8 ranks are exact in bf16, if the depth is a power of two.
float inputAt(std::size_t row) {
  return static_cast<float>(row % 4 + 1);
}
float weightAt(std::size_t column, int rank) {
  return static_cast<float>((column % 2 + 1) * static_cast<std::size_t>(rank + 1));
}

/// Calls of one layer, of bf16. The results of each are kept.
class ExactGemms {
 public:
  ExactGemms(const GpuRank& rank, const GemmLayer& layer, std::size_t rows, std::size_t calls)
      : rank_(rank), layer_(layer), rows_(rows), calls_(calls) {
    std::vector<bf16> input, weight;
    const Range inputs = layer.collective == GemmCollective::AllGather ? own() : Range{0, rows};
    for (std::size_t row = inputs.begin; row < inputs.end; ++row) {
      input.insert(input.end(), layer.depth, narrow<bf16>(inputAt(row)));
    }
    for (std::size_t column = 0; column < layer.width; ++column) {
      weight.insert(weight.end(), layer.depth, narrow<bf16>(weightAt(column, rank.rank)));
    }
    input_ = copyToGpu(input);
    weight_ = copyToGpu(weight);
    outputs_ = detail::gpuCallocUnique<bf16>(calls * outputElements());
  }

  /// The call, but for its stream, whose results are those of number `call`.
  FusedGemmCall call(std::size_t call) const {
    return {.input = input_.get(),
            .weight = weight_.get(),
            .output = outputs_.get() + call * outputElements(),
            .rows = rows_,
            .width = layer_.width,
            .depth = layer_.depth};
  }
  /// Forgets the results of all calls.
  void clear(cudaStream_t stream) {
    MSCCLPP_CUDATHROW(cudaMemsetAsync(outputs_.get(), 0xff, calls_ * outputElements() * sizeof(bf16), stream));
  }
  std::size_t wrongElements() const {
    std::vector<bf16> results(calls_ * outputElements());
    gpuMemcpy(results.data(), outputs_.get(), results.size(), cudaMemcpyDeviceToHost);
    const Range rows = layer_.collective == GemmCollective::ReduceScatter ? own() : Range{0, rows_};
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const std::size_t row = rows.begin + i % outputElements() / layer_.width, column = i % layer_.width;
      float factor = 0;
      for (int r = 0; r < rank_.ranks; ++r) {
        if (layer_.collective != GemmCollective::AllGather || r == rank_.rank) factor += weightAt(column, r);
      }
      if (widen<bf16>(results[i]) != static_cast<float>(layer_.depth) * inputAt(row) * factor) ++wrong;
    }
    return wrong;
  }

 private:
  Range own() const {
    const auto ranks = static_cast<std::size_t>(rank_.ranks);
    return steppedPart(rows_, ceilDivide(rows_, ranks), static_cast<std::size_t>(rank_.rank));
  }
  std::size_t outputElements() const {
    return (layer_.collective == GemmCollective::ReduceScatter ? own().size() : rows_) * layer_.width;
  }

  const GpuRank& rank_;
  GemmLayer layer_;
  std::size_t rows_, calls_;
  detail::UniqueGpuPtr<bf16> input_, weight_, outputs_;
};

/// Dispatches whose experts return their rows as they are.
class IdentityExperts {
 public:
  static constexpr std::uint32_t tokens = 300, hidden = 1024;
  static constexpr int topk = 2;

  explicit IdentityExperts(const GpuRank& rank)
      : rank_(rank), buffer_(*rank.communicator, DeviceType::GPU, config(rank.ranks)) {
    std::vector<bf16> rows;
    std::vector<std::int64_t> experts;
    for (std::size_t i = 0; i < std::size_t{tokens} * hidden; ++i) rows.push_back(narrow<bf16>(elementAt(i)));
    for (std::uint32_t token = 0; token < tokens; ++token) {
      for (std::uint32_t k = 0; k < topk; ++k) experts.push_back((token * 3 + k) % (2 * rank.ranks));
    }
    const std::uint32_t capacity = buffer_.largestCapacity();
    rows_ = copyToGpu(rows);
    experts_ = copyToGpu(experts);
    batchRows_ = detail::gpuCallocUnique<bf16>(std::size_t{capacity} * hidden);
    counts_ = detail::gpuCallocUnique<std::uint32_t>(2);
    offsets_ = detail::gpuCallocUnique<std::uint32_t>(3);
    output_ = detail::gpuCallocUnique<bf16>(rows.size());
    handle_ = buffer_.makeHandle();
    tokens_ = {.rows = rows_.get(), .experts = experts_.get(), .tokens = tokens};
    batch_ = {.rows = batchRows_.get(), .counts = counts_.get(), .offsets = offsets_.get(), .capacity = capacity};
  }

  void enqueue(cudaStream_t stream) {
    MSCCLPP_CUDATHROW(
        cudaMemsetAsync(batchRows_.get(), 0xff, std::size_t{batch_.capacity} * hidden * sizeof(bf16), stream));
    MSCCLPP_CUDATHROW(cudaMemsetAsync(output_.get(), 0xff, std::size_t{tokens} * hidden * sizeof(bf16), stream));
    buffer_.dispatch(tokens_, batch_, handle_, stream);
    buffer_.combine(batchRows_.get(), output_.get(), handle_, stream);
  }
  /// Of the last call.
  std::size_t wrongElements() const {
    buffer_.check();
    std::vector<bf16> output(std::size_t{tokens} * hidden);
    gpuMemcpy(output.data(), output_.get(), output.size(), cudaMemcpyDeviceToHost);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < output.size(); ++i) {
      if (widen<bf16>(output[i]) != topk * elementAt(i)) ++wrong;
    }
    return wrong;
  }

 private:
  static moe::BufferConfig config(int ranks) {
    return {.maxTokens = tokens, .topk = topk, .experts = 2 * ranks, .hidden = hidden};
  }
  float elementAt(std::size_t i) const { return static_cast<float>(i % 61 + static_cast<std::size_t>(rank_.rank)); }

  const GpuRank& rank_;
  moe::Buffer buffer_;
  detail::UniqueGpuPtr<bf16> rows_, batchRows_, output_;
  detail::UniqueGpuPtr<std::int64_t> experts_;
  detail::UniqueGpuPtr<std::uint32_t> counts_, offsets_;
  moe::DispatchHandle handle_;
  moe::Tokens tokens_;
  moe::ExpertBatch batch_;
};

constexpr std::size_t longest = 2'000'000;  // 8 MB: kernels with the most blocks
constexpr std::size_t callsOfRound = 4;

/// Calls of a layer on a stream of its own.
class GemmStream {
 public:
  GemmStream(const GpuRank& rank, const GemmLayer& layer, std::unique_ptr<FusedGemm> gemm)
      : rank_(rank.rank), gemm_(std::move(gemm)), products_(rank, layer, layer.maxRows, callsOfRound) {}

  cudaStream_t stream() const { return stream_; }
  const FusedGemm& gemm() const { return *gemm_; }
  /// After random delays, of a round in memory of the GPU.
  void enqueueRound(const std::uint64_t* round) {
    products_.clear(stream_);
    for (std::size_t i = 0; i < callsOfRound; ++i) {
      randomDelay<<<1, 1, 0, stream_>>>(round, 500 + static_cast<int>(i), rank_);
      FusedGemmCall call = products_.call(i);
      call.stream = stream_;
      gemm_->run(call);
    }
  }
  /// Of the last round.
  std::size_t wrongElements() const {
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream_));
    gemm_->check();
    return products_.wrongElements();
  }

 private:
  int rank_;
  CudaStreamWithFlags stream_{cudaStreamNonBlocking};
  std::unique_ptr<FusedGemm> gemm_;
  ExactGemms products_;
};

}  // namespace

TEST_CASE("fused GEMMs of layers that differ in the size that scratch does not depend on") {
  runOnAllGpus("a rank with several layers");
}
TEST_CASE("a rank with several layers" * doctest::skip()) {
  const GpuRank rank;
  const auto collectives = std::make_shared<Collectives>(rank.communicator, DeviceType::GPU);
  FusedGemms gemms(rank.communicator, DeviceType::GPU, collectives);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  std::vector<std::pair<GemmCollective, ExactGemms>> allProducts;
  for (const GemmCollective collective :
       {GemmCollective::AllReduce, GemmCollective::ReduceScatter, GemmCollective::AllGather}) {
    CAPTURE(static_cast<int>(collective));
    const bool gathers = collective == GemmCollective::AllGather;
    for (const std::size_t rows : {16, 1024}) {
      for (const std::size_t other : {64, 1024, 8192}) {
        CAPTURE(rows);
        CAPTURE(other);
        const GemmLayer layer{.collective = collective,
                              .maxRows = rows,
                              .width = gathers ? other : 1024,
                              .depth = gathers ? 1024 : other};
        ExactGemms products(rank, layer, rows, 1);
        FusedGemmCall call = products.call(0);
        call.stream = stream;
        CHECK_FALSE(gemms.form(collective, call));
        gemms.run(collective, call);
        MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
        gemms.check();
        CHECK(products.wrongElements() == 0);
        // As of an object for this layer alone, with the same room for rows.
        GemmLayer alone = layer;
        alone.maxRows = std::max<std::size_t>(rows, 64);
        const auto gemm = makeFusedGemm(*rank.communicator, alone, DeviceType::GPU, collectives);
        CHECK(gemms.form(collective, call) == gemm->form(rows));
        allProducts.emplace_back(collective, std::move(products));
      }
    }
  }
  // Objects that share what cuBLAS works in, one after the other.
  for (int pass = 0; pass < 3; ++pass) {
    for (auto& [collective, products] : allProducts) {
      products.clear(stream);
      FusedGemmCall call = products.call(0);
      call.stream = stream;
      gemms.run(collective, call);
    }
  }
  MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
  gemms.check();
  for (const auto& [collective, products] : allProducts) CHECK(products.wrongElements() == 0);
  rank.report("fused GEMMs of several layers");
  rank.bootstrap->barrier();
}

TEST_CASE("a shared Cublas is one object for each kind of operands, while it is in use") {
  kernels::SharedCublas shared;
  std::shared_ptr<const kernels::Cublas> first;
  try {
    first = shared.get(DataType::BFLOAT16, false);
  } catch (const Error& error) {
    MESSAGE("there is no cuBLAS: " << error.what());
    return;
  }
  CHECK(shared.get(DataType::BFLOAT16, false) == first);
  CHECK(kernels::SharedCublas().get(DataType::BFLOAT16, false) != first);
  const std::weak_ptr<const kernels::Cublas> released = std::exchange(first, nullptr);
  CHECK(released.expired());
  CHECK(shared.get(DataType::BFLOAT16, false) != nullptr);
}

TEST_CASE("fused GEMMs of each form beside another one, collectives and dispatches, each on a stream of its own") {
  runOnAllGpus("a rank with several streams");
}
TEST_CASE("a rank with several streams" * doctest::skip()) {
  ::setenv("MSCCLPP_WAIT_TIMEOUT", "10", 1);  // before the library reads it: kernels that never meet their peers
  const GpuRank rank;
  const auto collectives = std::make_shared<Collectives>(rank.communicator, DeviceType::GPU);
  CheckedCalls sums(rank, *collectives, longest);
  IdentityExperts experts(rank);
  const auto round = detail::gpuCallocUnique<std::uint64_t>(1);
  const CudaStreamWithFlags ofExperts(cudaStreamNonBlocking);
  const std::size_t rows = 256 * static_cast<std::size_t>(rank.ranks);
  const auto make = [&](GemmCollective collective, GemmForm form, std::size_t width,
                        const std::shared_ptr<Collectives>& ofSerial) {
    const GemmLayer layer{.collective = collective, .maxRows = rows, .width = width, .depth = 1024};
    return GemmStream(rank, layer, kernels::gpu::makeFusedGemm(*rank.communicator, layer, ofSerial, form));
  };
  // Where there are kernels of CUTLASS, one on every multiprocessor, whose registers it needs.
  GemmStream others = make(GemmCollective::AllReduce, GemmForm::Cutlass, 8192, nullptr);
  for (const GemmCollective collective : {GemmCollective::AllReduce, GemmCollective::AllGather}) {
    for (const GemmForm form : {GemmForm::Fused, GemmForm::Cutlass, GemmForm::Serial, GemmForm::Overlapped}) {
      CAPTURE(static_cast<int>(collective));
      CAPTURE(static_cast<int>(form));
      GemmStream gemms = make(collective, form, 1024, collectives);
      if (gemms.gemm().form(rows) != form) {
        MESSAGE("there is no such form");
        continue;
      }
      const auto enqueueGemms = [&] { gemms.enqueueRound(round.get()); };
      const auto enqueueOthers = [&] { others.enqueueRound(round.get()); };
      const auto enqueueSums = [&] {
        for (std::size_t i = 0; i < callsOfRound; ++i) {
          sums.enqueue(i % 2 == 0 ? sumOf(longest, "pipelined") : sumOf(1000));
        }
        sums.enqueueNextRound();
      };
      const auto enqueueExperts = [&] {
        randomDelay<<<1, 1, 0, ofExperts>>>(round.get(), 600, rank.rank);
        experts.enqueue(ofExperts);
        nextRound<<<1, 1, 0, ofExperts>>>(round.get());
      };
      const auto enqueueAll = [&] {
        enqueueGemms();
        enqueueOthers();
        enqueueSums();
        enqueueExperts();
      };
      const auto check = [&] {
        CHECK(gemms.wrongElements() == 0);
        CHECK(others.wrongElements() == 0);
        CHECK(sums.wrongElements() == 0);
        MSCCLPP_CUDATHROW(cudaStreamSynchronize(ofExperts));
        CHECK(experts.wrongElements() == 0);
      };
      // Loading a kernel may wait for running ones, so load all first.
      for (const std::function<void()>& enqueue :
           std::initializer_list<std::function<void()>>{enqueueGemms, enqueueOthers, enqueueSums, enqueueExperts}) {
        enqueue();
        MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
      }
      check();
      rank.bootstrap->barrier();
      constexpr int rounds = 20;
      for (int i = 0; i < rounds; ++i) enqueueAll();
      check();
      rank.bootstrap->barrier();
      // In graphs, with eager calls between the launches. A serial call uses the collectives, whose launches of graphs
      // are not ordered with their calls on another stream.
      if (form == GemmForm::Serial) continue;
      const Graph graphs[] = {{gemms.stream(), enqueueGemms},
                              {others.stream(), enqueueOthers},
                              {sums.stream(), enqueueSums},
                              {ofExperts, enqueueExperts}};
      for (int i = 0; i < rounds; ++i) {
        for (const Graph& graph : graphs) graph.launch();
        if (i % 3 == 0) enqueueAll();
      }
      check();
      rank.bootstrap->barrier();
    }
  }
  rank.report("fused GEMMs, collectives and dispatches on several streams");
  rank.bootstrap->barrier();
}
