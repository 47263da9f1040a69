// The compiled GEMMs with a collective inside, one process and GPU per rank.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/gemm/cutlass/gemm.hpp"
#include "kernels/gemm/form_choice.hpp"
#include "kernels/gpu_budget.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "mscclpp/kernels/fused_gemm.hpp"
#include "tests/fusion/gemm/gemm_tester.hpp"
#include "tests/kernels/gemm/norm_problem.hpp"
#include "tests/kernels/gpu_rank.cuh"
#include "tests/kernels/invalid_usage.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

/// In memory of the GPU, from `offset` elements on.
template <class T>
detail::UniqueGpuPtr<T> copyToGpu(std::vector<T> values, std::ptrdiff_t offset) {
  values.insert(values.begin(), static_cast<std::size_t>(offset), narrow<T>(NAN));
  return mscclpp::test::copyToGpu(values);
}

/// One call of random matrices, which begin `offset` elements after multiples of 16 bytes, made twice by a graph, and
/// once more without one and with the inputs negated; checks every element. Operand: the type of the layer's operands.
/// Returns the last result.
template <class Operand>
std::vector<bf16> checkCall(const GpuRank& rank, const FusedGemm& gemm, const GemmLayer& layer, std::size_t rows,
                            std::ptrdiff_t offset = 0) {
  CAPTURE(rows);
  CAPTURE(offset);
  const bool gathers = layer.collective == GemmCollective::AllGather;
  const bool scatters = layer.collective == GemmCollective::ReduceScatter;
  const std::size_t slice = ceilDivide(rows, static_cast<std::size_t>(rank.ranks));
  const Range own = steppedPart(rows, slice, static_cast<std::size_t>(rank.rank));
  std::vector<HostMatrix<Operand>> inputs, weights;
  std::vector<RankProduct> products;
  std::vector<float> inputScales, weightScales;
  for (int r = 0; r < rank.ranks; ++r) {
    const auto seed = static_cast<unsigned>(rows) * 16 + static_cast<unsigned>(r);
    const unsigned inputSeed = gathers ? static_cast<unsigned>(rows) : seed;
    inputs.push_back(randomMatrix<Operand>(rows, layer.depth, layer.depth, inputSeed));
    weights.push_back(randomMatrix<Operand>(layer.width, layer.depth, layer.depth, seed + 5000));
    const auto ofRows = randomScales(rows, inputSeed + 300), ofColumns = randomScales(layer.width, seed + 400);
    if (r == rank.rank) {
      const Range inputRows = gathers ? own : Range{0, rows};
      inputScales.assign(ofRows.begin() + static_cast<std::ptrdiff_t>(inputRows.begin),
                         ofRows.begin() + static_cast<std::ptrdiff_t>(inputRows.end));
      inputScales.push_back(0.0f);  // not empty
      weightScales = ofColumns;
    }
    if (gathers && r != rank.rank) continue;
    products.push_back(RankProduct::of(inputs.back(), weights.back()));
    if (hasScales<Operand>) products.back().scale(ofRows.data(), ofColumns.data());
  }
  const auto& mine = inputs[static_cast<std::size_t>(rank.rank)].data;
  const auto at = [&](std::size_t row) { return mine.begin() + static_cast<std::ptrdiff_t>(row * layer.depth); };
  std::vector<Operand> part(at(gathers ? own.begin : 0), at(gathers ? own.end : rows));
  part.push_back(narrow<Operand>(0.0f));  // not empty
  std::vector<Operand> negated;
  for (const Operand value : part) negated.push_back(narrow<Operand>(-widen<Operand>(value)));
  const auto input = copyToGpu(part, offset), otherInput = copyToGpu(negated, offset);
  const auto weight = copyToGpu(weights[static_cast<std::size_t>(rank.rank)].data, offset);
  const auto scalesOfInput = copyToGpu(inputScales, offset), scalesOfWeight = copyToGpu(weightScales, offset);
  const std::size_t outputRows = scatters ? own.size() : rows;
  std::vector<bf16> results(outputRows * layer.width + 1, narrow<bf16>(-77.0f));
  const auto output = copyToGpu(results, offset);
  CudaStreamWithFlags stream(cudaStreamNonBlocking);
  const auto run = [&](const Operand* from) {
    FusedGemmCall call{from + offset, weight.get() + offset, output.get() + offset, rows, stream, layer.width,
                       layer.depth};
    if (hasScales<Operand>) {
      call.inputScales = scalesOfInput.get() + offset;
      call.weightScales = scalesOfWeight.get() + offset;
    }
    gemm.run(call);
  };
  const Graph graph(stream, [&] {
    for (int call = 0; call < 2; ++call) run(input.get());
  });
  // sign: of the inputs.
  const auto checkResults = [&](double sign) {
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
    gemm.check();
    gpuMemcpy(results.data(), output.get() + offset, results.size(), cudaMemcpyDeviceToHost);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < outputRows * layer.width; ++i) {
      const std::size_t from = i + (scatters ? own.begin * layer.width : 0);
      double sum = 0, bound = 1e-6;
      for (const RankProduct& product : products) {
        sum += sign * product.values[from];
        bound += std::fabs(product.values[from]) / 256 + productBound<Operand>(layer.depth) * product.magnitudes[from];
      }
      bound += (std::fabs(sum) + bound) / 256;
      if (!(std::fabs(static_cast<double>(widen<bf16>(results[i])) - sum) <= bound)) ++wrong;
    }
    CHECK(wrong == 0);
    CHECK(widen<bf16>(results.back()) == -77.0f);
  };
  graph.launch();
  checkResults(1);
  run(otherInput.get());
  checkResults(-1);
  return results;
}

/// One call with a norm, made twice by a graph. Operand: the type of the layer's operands.
template <class Operand>
void checkNormCall(const GpuRank& rank, const FusedGemm& gemm, GemmCollective collective, const GemmNormSizes& sizes,
                   Quantisation quantisation, bool hasResidual) {
  CAPTURE(sizes.rows);
  CAPTURE(static_cast<int>(quantisation));
  const GemmNormProblemOf<Operand> problem(collective, rank.rank, rank.ranks, sizes, quantisation, hasResidual);
  GemmNormOutputs outputs = problem.poisoned();
  auto ownResidual = problem.residual();
  ownResidual.push_back(narrow<bf16>(0.0f));  // not empty
  const auto input = mscclpp::test::copyToGpu(problem.input()), weight = mscclpp::test::copyToGpu(problem.weight());
  const auto gain = mscclpp::test::copyToGpu(problem.gain()), residual = mscclpp::test::copyToGpu(ownResidual),
             newResidual = mscclpp::test::copyToGpu(outputs.newResidual),
             normalised = mscclpp::test::copyToGpu(outputs.normalised);
  const auto quantised = mscclpp::test::copyToGpu(outputs.quantised);
  const auto scales = mscclpp::test::copyToGpu(outputs.scales),
             scale = mscclpp::test::copyToGpu(std::vector<float>{problem.scale});
  const std::vector<float> none(1);
  const auto ofRows = mscclpp::test::copyToGpu(hasScales<Operand> ? problem.inputScales() : none),
             ofColumns = mscclpp::test::copyToGpu(hasScales<Operand> ? problem.weightScales() : none);
  const RmsNormCall norm = problem.norm(gain.get(), residual.get(), newResidual.get(), normalised.get(),
                                        quantised.get(), scales.get(), scale.get());
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  const FusedGemmCall call{.input = input.get(),
                           .weight = weight.get(),
                           .rows = sizes.rows,
                           .stream = stream,
                           .depth = sizes.depth,
                           .norm = &norm,
                           .inputScales = hasScales<Operand> ? ofRows.get() : nullptr,
                           .weightScales = hasScales<Operand> ? ofColumns.get() : nullptr};
  gemm.run(call);  // the first one may not be captured
  const Graph graph(stream, [&] {
    for (int i = 0; i < 2; ++i) gemm.run(call);
  });
  graph.launch();
  MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
  gemm.check();
  const auto read = [](auto& values, const auto& array) {
    gpuMemcpy(values.data(), array.get(), values.size(), cudaMemcpyDeviceToHost);
  };
  read(outputs.newResidual, newResidual);
  read(outputs.normalised, normalised);
  read(outputs.quantised, quantised);
  read(outputs.scales, scales);
  const std::string difference = problem.differenceOf(outputs);
  CHECK_MESSAGE(difference.empty(), difference);
  if (collective == GemmCollective::AllReduce) CHECK(isSameOnAllRanks(*rank.bootstrap, outputs));
}

bool hasCutlassGemm(GemmCollective collective, int ranks, DataType operands) {
  int device = 0, major = 0;
  MSCCLPP_CUDATHROW(cudaGetDevice(&device));
  MSCCLPP_CUDATHROW(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return kernels::findCutlassGemm(collective, ranks, operands) != nullptr && major == 9;
}

}  // namespace

namespace {

/// By every form and kernel.
template <class Operand>
void checkForms() {
  const GpuRank rank;
  for (const GemmCollective collective :
       {GemmCollective::AllReduce, GemmCollective::ReduceScatter, GemmCollective::AllGather}) {
    // Multiples of 8 elements of bf16, and of 16 of fp8.
    GemmLayer layer{collective, 700, 136, 200};
    if (std::is_same_v<Operand, f8e4m3>) layer.width = 144, layer.depth = 208;
    layer.operands = typeOf<Operand>;
    const bool hasCutlass = hasCutlassGemm(collective, rank.ranks, layer.operands);
    for (const GemmForm form : {GemmForm::Fused, GemmForm::Cutlass}) {
      if (form == GemmForm::Cutlass && !hasCutlass) continue;
      CAPTURE(static_cast<int>(form));
      const auto gemm = kernels::gpu::makeFusedGemm(*rank.communicator, layer, nullptr, form);
      for (const std::size_t rows : {1, 16, 17, 32, 33, 64, 65, 128, 129, 333, 512, 700}) {
        CHECK((gemm->form(rows) == GemmForm::Cutlass) ==
              (form == GemmForm::Cutlass && kernels::cutlassAccepts(layer, rows, rank.ranks)));
        checkCall<Operand>(rank, *gemm, layer, rows);
      }
      // What the scratch does not depend on may change. Any sizes and addresses, which TMA cannot have.
      GemmLayer changed = layer;
      auto& size = collective == GemmCollective::AllGather ? changed.width : changed.depth;
      size = 328;
      for (const std::size_t rows : {3, 90, 512}) checkCall<Operand>(rank, *gemm, changed, rows);
      size = 203;
      for (const std::size_t rows : {90, 512}) checkCall<Operand>(rank, *gemm, changed, rows);
      checkCall<Operand>(rank, *gemm, layer, 512, 1);
      CHECK(gemm->form(700) != GemmForm::Serial);
      CHECK_THROWS_AS(gemm->run({nullptr, nullptr, nullptr, 701, nullptr}), Error);
    }
    // The form that is estimated to be the fastest; and with a few blocks, beside other calls.
    const auto collectives = std::make_shared<Collectives>(rank.communicator, DeviceType::GPU);
    const auto chosen = makeFusedGemm(*rank.communicator, layer, DeviceType::GPU, collectives);
    const auto serial = kernels::gpu::makeFusedGemm(*rank.communicator, layer, collectives, GemmForm::Serial);
    const auto overlapped = kernels::gpu::makeFusedGemm(*rank.communicator, layer, collectives, GemmForm::Overlapped);
    CHECK((overlapped->form(512) == GemmForm::Overlapped) ==
          (collective == GemmCollective::AllGather && serial->form(512) == GemmForm::Serial));
    for (const std::size_t rows : {64, 300, 512, 700}) {
      checkCall<Operand>(rank, *chosen, layer, rows);
      checkCall<Operand>(rank, *serial, layer, rows);
      checkCall<Operand>(rank, *overlapped, layer, rows);
    }
    for (const FusedGemm* gemm : {serial.get(), overlapped.get()}) {
      GemmLayer changed = layer;
      (collective == GemmCollective::AllGather ? changed.width : changed.depth) = 203;
      checkCall<Operand>(rank, *gemm, changed, 512);
      checkCall<Operand>(rank, *gemm, layer, 512, 1);
    }
    if (hasScales<Operand>) {
      GemmLayer exact = layer, fast = layer;
      exact.depth = fast.depth = 2080;
      fast.fastAccumulation = true;
      for (const GemmForm form : {GemmForm::Fused, GemmForm::Cutlass, GemmForm::Serial, GemmForm::Overlapped}) {
        CAPTURE(static_cast<int>(form));
        const auto gemm = kernels::gpu::makeFusedGemm(*rank.communicator, exact, collectives, form);
        const auto fastGemm = kernels::gpu::makeFusedGemm(*rank.communicator, fast, collectives, form);
        if (gemm->form(512) != form) continue;
        CHECK(fastGemm->form(512) == form);
        const auto results = checkCall<Operand>(rank, *gemm, exact, 512);
        const auto fastResults = checkCall<Operand>(rank, *fastGemm, fast, 512);
        const bool areSame = std::memcmp(results.data(), fastResults.data(), results.size() * sizeof(bf16)) == 0;
        CHECK(areSame == (form == GemmForm::Fused));
      }
    }
    for (const int blocks : {7, 64}) {
      GemmLayer small = layer;
      small.maxBlocks = blocks;
      const auto fewBlocks = makeFusedGemm(*rank.communicator, small);
      for (const std::size_t rows : {64, 300, 512, 700}) checkCall<Operand>(rank, *fewBlocks, layer, rows);
    }
    // Ranks with different numbers take the same forms, by the fewest blocks.
    GemmLayer uneven = layer, fewest = layer;
    uneven.maxBlocks = 5 + 40 * rank.rank;
    fewest.maxBlocks = 5;
    const auto unevenGemm = makeFusedGemm(*rank.communicator, uneven, DeviceType::GPU, collectives);
    const auto fewestGemm = makeFusedGemm(*rank.communicator, fewest, DeviceType::GPU, collectives);
    for (const std::size_t rows : {16, 64, 300, 700}) {
      CHECK(unevenGemm->form(rows) == fewestGemm->form(rows));
      checkCall<Operand>(rank, *unevenGemm, layer, rows);
    }
    GemmLayer odd = layer;
    odd.maxRows = 90;
    odd.width = 77;
    odd.depth = 51;
    const auto oddGemm = makeFusedGemm(*rank.communicator, odd);
    for (const std::size_t rows : {2, 65, 90}) checkCall<Operand>(rank, *oddGemm, odd, rows);
    rank.bootstrap->barrier();
  }
  CHECK_THROWS_AS(makeFusedGemm(*rank.communicator, {}), Error);
  rank.report("fused GEMMs");
  rank.bootstrap->barrier();
}

}  // namespace

TEST_CASE("fused GEMMs of all kinds, by every kernel, in graphs") {
  runOnAllGpus("a rank multiplies");
}
TEST_CASE("a rank multiplies" * doctest::skip()) {
  checkForms<bf16>();
}
namespace {

/// Calls for which the plan takes the tiles, and the blocks that only send, that shorter ones do not take, on two GPUs
/// of the size of an H100. Those of an all-reduce are for longer ones, which the benchmark checks.
void checkFp8Plans() {
  const GpuRank rank;
  const struct {
    GemmCollective collective;
    std::size_t rows, width;
    int columns;
    bool sends;
  } calls[] = {
      {GemmCollective::AllGather, 512, 10240, 160, false},    {GemmCollective::AllGather, 512, 2560, 128, true},
      {GemmCollective::AllGather, 1024, 8192, 256, false},    {GemmCollective::ReduceScatter, 512, 5120, 192, false},
      {GemmCollective::ReduceScatter, 512, 8192, 256, false}, {GemmCollective::ReduceScatter, 1024, 8192, 128, true}};
  for (const auto& call : calls) {
    CAPTURE(static_cast<int>(call.collective));
    CAPTURE(call.width);
    GemmLayer layer{call.collective, call.rows, call.width, 64};
    layer.operands = DataType::FLOAT8_E4M3FN;
    if (!hasCutlassGemm(call.collective, rank.ranks, layer.operands)) continue;
    // As an object alone on a GPU with so many multiprocessors has it.
    constexpr int multiprocessors = 132, blocks = multiprocessors - 2;
    if (rank.ranks == 2 && kernels::gpu::multiprocessors() == multiprocessors) {
      const kernels::GemmRates& rates = kernels::gemmRates[kernels::gemmRatesOf("H200")];
      const kernels::GemmPlace place{kernels::ratesFor(rates, layer), blocks,
                                     kernels::cutlassGemmBlocks(blocks, multiprocessors), 2};
      const auto plan = kernels::planCutlassGemm(place, layer, call.rows);
      CHECK(cutlassTiles[plan.tile].columns == call.columns);
      CHECK((plan.sendingBlocks > 0) == call.sends);
    }
    const auto gemm = kernels::gpu::makeFusedGemm(*rank.communicator, layer, nullptr, GemmForm::Cutlass);
    CHECK(gemm->form(call.rows) == GemmForm::Cutlass);
    checkCall<f8e4m3>(rank, *gemm, layer, call.rows);
    rank.bootstrap->barrier();
  }
  rank.report("plans of fp8");
  rank.bootstrap->barrier();
}

}  // namespace

TEST_CASE("fused GEMMs of fp8, by the tiles and sending blocks of kernels of CUTLASS") {
  runOnAllGpus("a rank multiplies fp8 with every tile");
}
TEST_CASE("a rank multiplies fp8 with every tile" * doctest::skip()) {
  checkFp8Plans();
}
TEST_CASE("fused GEMMs of fp8 with scales, by every kernel, in graphs") {
  runOnAllGpus("a rank multiplies fp8");
}
TEST_CASE("a rank multiplies fp8" * doctest::skip()) {
  checkForms<f8e4m3>();
}

namespace {

template <class Operand>
void checkNorms() {
  const GpuRank rank;
  const auto collectives = std::make_shared<Collectives>(rank.communicator, DeviceType::GPU);
  for (const GemmCollective collective : {GemmCollective::AllReduce, GemmCollective::ReduceScatter}) {
    const GemmLayer layer{.collective = collective,
                          .maxRows = 333,
                          .width = 304,
                          .depth = 200,
                          .hasNorm = true,
                          .operands = typeOf<Operand>};
    for (const GemmForm form : {GemmForm::Fused, GemmForm::Serial}) {
      CAPTURE(static_cast<int>(form));
      const auto gemm = kernels::gpu::makeFusedGemm(*rank.communicator, layer, collectives, form);
      // A reduce-scatter has no other form; without cuBLAS, neither has an all-reduce.
      if (form == GemmForm::Serial && gemm->form(1) != form) continue;
      CHECK(gemm->form(1) == form);
      for (const Quantisation quantisation : allQuantisations) {
        for (const std::size_t rows : {1, 16, 17, 64, 65, 333}) {
          checkNormCall<Operand>(rank, *gemm, collective, {rows, 304, 200}, quantisation, rows != 17);
        }
      }
      checkNormCall<Operand>(rank, *gemm, collective, {90, 304, 51}, Quantisation::None, true);
    }
    GemmLayer few = layer;
    few.maxBlocks = 7;
    few.width = mostFusedNormWidth;
    const auto fewBlocks = makeFusedGemm(*rank.communicator, few);
    for (const std::size_t rows : {3, 70}) {
      checkNormCall<Operand>(rank, *fewBlocks, collective, {rows, mostFusedNormWidth, 16}, Quantisation::Fp8PerGroup,
                             true);
    }
    GemmLayer longest = layer;
    longest.width = mostRmsNormElements;
    expectInvalidUsage("above 8192", [&] { makeFusedGemm(*rank.communicator, longest); });
    rank.bootstrap->barrier();
  }
  rank.report("fused GEMMs with a norm");
  rank.bootstrap->barrier();
}

}  // namespace

TEST_CASE("fused GEMMs with residual, RMSNorm and quantisation, by every kernel, in graphs") {
  runOnAllGpus("a rank multiplies and normalises");
}
TEST_CASE("a rank multiplies and normalises" * doctest::skip()) {
  checkNorms<bf16>();
}
TEST_CASE("fused GEMMs of fp8 with residual, RMSNorm and quantisation, by every kernel, in graphs") {
  runOnAllGpus("a rank multiplies fp8 and normalises");
}
TEST_CASE("a rank multiplies fp8 and normalises" * doctest::skip()) {
  checkNorms<f8e4m3>();
}
