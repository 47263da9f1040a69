// The compiled GEMMs with a collective inside on CPU ranks, one per thread.
#include "mscclpp/kernels/fused_gemm.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/fusion/gemm/gemm_tester.hpp"
#include "tests/host/spawned_ranks.hpp"
#include "tests/kernels/gemm/norm_problem.hpp"
#include "tests/kernels/invalid_usage.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr GemmCollective collectives[] = {GemmCollective::AllReduce, GemmCollective::ReduceScatter,
                                          GemmCollective::AllGather};

/// One call of random matrices, of fp8 with random scales; checks every element, and what is behind the output.
/// The bound of an element: for each rank that of a sum in fp32, with the multiplications by its scales, and of its
/// rounding to bf16; and that of the rounding of what they sum up to.
template <class Operand>
void checkCall(const FusedGemm& gemm, GemmCollective collective, int rank, int ranks, const FusedGemmCall& sizes) {
  const std::size_t rows = sizes.rows, width = sizes.width, depth = sizes.depth;
  const std::string where = "rank " + std::to_string(rank) + " of " + std::to_string(ranks) + ", collective " +
                            std::to_string(static_cast<int>(collective)) + ", " + std::to_string(rows) + " x " +
                            std::to_string(width) + " x " + std::to_string(depth);
  CAPTURE(where);
  const bool gathers = collective == GemmCollective::AllGather, scatters = collective == GemmCollective::ReduceScatter;
  const Range own =
      steppedPart(rows, ceilDivide(rows, static_cast<std::size_t>(ranks)), static_cast<std::size_t>(rank));
  std::vector<Operand> input, weight;
  std::vector<float> inputScales, weightScales;
  std::vector<RankProduct> products;
  for (int r = 0; r < ranks; ++r) {
    if (gathers && r != rank) continue;
    const auto seed = static_cast<unsigned>(rows) * 16 + static_cast<unsigned>(r);
    const unsigned inputSeed = gathers ? static_cast<unsigned>(rows) : seed;
    const auto ofInput = randomMatrix<Operand>(rows, depth, depth, inputSeed);
    const auto ofWeight = randomMatrix<Operand>(width, depth, depth, seed + 5000);
    const auto ofRows = randomScales(rows, inputSeed + 300), ofColumns = randomScales(width, seed + 400);
    products.push_back(RankProduct::of(ofInput, ofWeight));
    if (hasScales<Operand>) products.back().scale(ofRows.data(), ofColumns.data());
    if (r != rank) continue;
    const auto at = [&](std::size_t row) { return ofInput.data.begin() + static_cast<std::ptrdiff_t>(row * depth); };
    const Range inputRows = gathers ? own : Range{0, rows};
    input.assign(at(inputRows.begin), at(inputRows.end));
    weight = ofWeight.data;
    inputScales.assign(ofRows.begin() + static_cast<std::ptrdiff_t>(inputRows.begin),
                       ofRows.begin() + static_cast<std::ptrdiff_t>(inputRows.end));
    weightScales = ofColumns;
  }
  const std::size_t outputRows = scatters ? own.size() : rows;
  std::vector<bf16> output(outputRows * width + 1, narrow<bf16>(-77.0f));
  FusedGemmCall call = sizes;
  call.input = input.data();
  call.weight = weight.data();
  call.output = output.data();
  if (hasScales<Operand>) {
    call.inputScales = inputScales.data();
    call.weightScales = weightScales.data();
  }
  gemm.run(call);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < outputRows * width; ++i) {
    const std::size_t from = i + (scatters ? own.begin * width : 0);
    double sum = 0, bound = 1e-6;
    for (const RankProduct& product : products) {
      sum += product.values[from];
      bound += std::fabs(product.values[from]) / 256 + productBound<Operand>(depth) * product.magnitudes[from];
    }
    bound += (std::fabs(sum) + bound) / 256;
    if (!(std::fabs(static_cast<double>(widen<bf16>(output[i])) - sum) <= bound)) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(widen<bf16>(output.back()) == -77.0f);
}

/// One call with a norm; inPlace: the new residual takes the place of the residual.
template <class Operand>
void checkNormCall(const FusedGemm& gemm, GemmCollective collective, Bootstrap& bootstrap, const GemmNormSizes& sizes,
                   Quantisation quantisation, bool hasResidual, bool inPlace) {
  const std::string where = "rank " + std::to_string(bootstrap.getRank()) + " of " +
                            std::to_string(bootstrap.getNranks()) + ", " + std::to_string(sizes.rows) + " x " +
                            std::to_string(sizes.width) + ", quantisation " +
                            std::to_string(static_cast<int>(quantisation));
  CAPTURE(where);
  using Problem = GemmNormProblemOf<Operand>;
  const Problem problem(collective, bootstrap.getRank(), bootstrap.getNranks(), sizes, quantisation, hasResidual);
  GemmNormOutputs outputs = problem.poisoned();
  const std::vector<bf16> residual = problem.residual();
  if (inPlace) std::copy(residual.begin(), residual.end(), outputs.newResidual.begin());
  const RmsNormCall norm = problem.norm(problem.gain().data(), inPlace ? outputs.newResidual.data() : residual.data(),
                                        outputs.newResidual.data(), outputs.normalised.data(), outputs.quantised.data(),
                                        outputs.scales.data(), &Problem::scale);
  FusedGemmCall call{.input = problem.input().data(),
                     .weight = problem.weight().data(),
                     .rows = sizes.rows,
                     .depth = sizes.depth,
                     .norm = &norm};
  if (hasScales<Operand>) {
    call.inputScales = problem.inputScales().data();
    call.weightScales = problem.weightScales().data();
  }
  gemm.run(call);
  const std::string difference = problem.differenceOf(outputs);
  CHECK_MESSAGE(difference.empty(), difference);
  if (collective == GemmCollective::AllReduce) CHECK(isSameOnAllRanks(bootstrap, outputs));
}

}  // namespace

TEST_CASE_TEMPLATE("fused GEMMs of all kinds on CPU ranks, of any size", Operand, bf16, f8e4m3) {
  for (const int ranks : thinned({1, 2, 3}, {3})) {
    runAsThreads(ranks, [&](const std::shared_ptr<Bootstrap>& bootstrap) {
      Communicator communicator(bootstrap);
      const int rank = bootstrap->getRank();
      for (const GemmCollective collective : collectives) {
        const bool gathers = collective == GemmCollective::AllGather;
        GemmLayer layer{.collective = collective, .maxRows = 70, .width = 77, .depth = 51};
        layer.operands = typeOf<Operand>;
        const auto gemm = makeFusedGemm(communicator, layer, DeviceType::CPU);
        for (const std::size_t rows : thinned<std::size_t>({1, 2, 5, 33, 70}, {2, 33}))
          checkCall<Operand>(*gemm, collective, rank, ranks, {.rows = rows, .width = 77, .depth = 51});
        // What the scratch does not depend on: all ranks the same, and each rank another.
        checkCall<Operand>(
            *gemm, collective, rank, ranks,
            {.rows = 9, .width = gathers ? std::size_t{8} : 77, .depth = gathers ? std::size_t{51} : 130});
        if (gathers) {
          const auto width = static_cast<std::size_t>(90 + rank);
          checkCall<Operand>(*gemm, collective, rank, ranks, {.rows = 33, .width = width, .depth = 51});
        }
        if (gathers && ranks == 1) {
          expectInvalidUsage("depth 52 of a layer of depth 51", [&] { gemm->run({.rows = 1, .depth = 52}); });
        }
        if (!gathers) {
          expectInvalidUsage("width 78 of a layer of width 77", [&] { gemm->run({.rows = 1, .width = 78}); });
        }
        expectInvalidUsage("71 rows of a layer of 70", [&] { gemm->run({.rows = 71}); });
        gemm->run({.rows = 0});
        // Longer than the slots of a pipeline: 300 x 700 elements.
        layer.maxRows = 300;
        layer.width = 700;
        layer.depth = 16;
        const auto longer = makeFusedGemm(communicator, layer, DeviceType::CPU);
        checkCall<Operand>(*longer, collective, rank, ranks, {.rows = 299, .width = 700, .depth = 16});
        gemm->check();
        bootstrap->barrier();
      }
      expectInvalidUsage("above 0", [&] { makeFusedGemm(communicator, {}, DeviceType::CPU); });
      bootstrap->barrier();
    });
  }
}

TEST_CASE_TEMPLATE("fused GEMMs with residual, RMSNorm and quantisation on CPU ranks", Operand, bf16, f8e4m3) {
  for (const int ranks : thinned({1, 2, 3}, {3})) {
    runAsThreads(ranks, [&](const std::shared_ptr<Bootstrap>& bootstrap) {
      Communicator communicator(bootstrap);
      for (const auto collective : {GemmCollective::AllReduce, GemmCollective::ReduceScatter}) {
        const GemmLayer layer{.collective = collective,
                              .maxRows = 40,
                              .width = 304,
                              .depth = 24,
                              .hasNorm = true,
                              .operands = typeOf<Operand>};
        const auto gemm = makeFusedGemm(communicator, layer, DeviceType::CPU);
        for (const Quantisation quantisation : allQuantisations) {
          for (const std::size_t rows : {1, 2, 17}) {  // fewer than ranks, and an odd number
            checkNormCall<Operand>(*gemm, collective, *bootstrap, {rows, 304, 24}, quantisation, true, rows == 2);
          }
          checkNormCall<Operand>(*gemm, collective, *bootstrap, {5, 304, 31}, quantisation, false, false);
        }
        const RmsNormCall none;
        gemm->run({.rows = 0, .norm = &none});
        gemm->check();
        // The longest rows.
        GemmLayer longest = layer;
        longest.width = mostRmsNormElements;
        const auto ofLongest = makeFusedGemm(communicator, longest, DeviceType::CPU);
        checkNormCall<Operand>(*ofLongest, collective, *bootstrap, {3, mostRmsNormElements, 8},
                               Quantisation::Fp8PerGroup, true, true);
        bootstrap->barrier();
      }
    });
  }
}

TEST_CASE("fused GEMMs multiply every value of fp8 as it is") {
  runAsThreads(1, [](const std::shared_ptr<Bootstrap>& bootstrap) {
    Communicator communicator(bootstrap);
    const GemmLayer layer{.maxRows = 256, .width = 1, .depth = 1, .operands = DataType::FLOAT8_E4M3FN};
    const auto gemm = makeFusedGemm(communicator, layer, DeviceType::CPU);
    std::vector<f8e4m3> values(256);
    for (unsigned bits = 0; bits < 256; ++bits) values[bits].__x = static_cast<__nv_fp8_storage_t>(bits);
    const f8e4m3 one = narrow<f8e4m3>(1.0f);
    const std::vector<float> scales(256, 1.0f);
    std::vector<bf16> output(256);
    gemm->run({.input = values.data(),
               .weight = &one,
               .output = output.data(),
               .rows = 256,
               .inputScales = scales.data(),
               .weightScales = scales.data()});
    for (std::size_t bits = 0; bits < 256; ++bits) {
      CAPTURE(bits);
      const float wanted = widen<f8e4m3>(values[bits]), got = widen<bf16>(output[bits]);
      CHECK((std::isnan(wanted) ? std::isnan(got) : got == wanted));  // bf16 has all of them
    }
  });
}

TEST_CASE("fused GEMMs with wrong operands or scales on CPU ranks") {
  runAsThreads(2, [](const std::shared_ptr<Bootstrap>& bootstrap) {
    Communicator communicator(bootstrap);
    const bf16 operands[8 * 8] = {};
    const float scales[8] = {};
    bf16 output[8 * 8] = {};
    const FusedGemmCall right{.input = operands,
                              .weight = operands,
                              .output = output,
                              .rows = 8,
                              .inputScales = scales,
                              .weightScales = scales};
    for (const GemmCollective collective : collectives) {
      GemmLayer layer{.collective = collective, .maxRows = 8, .width = 8, .depth = 8};
      const auto expect = [&](const char* part, DataType type) {
        layer.operands = type;
        expectInvalidUsage(part, [&] { makeFusedGemm(communicator, layer, DeviceType::CPU); });
      };
      expect("operands of half", DataType::FLOAT16);
      expect("operands of fp8_e5m2", DataType::FLOAT8_E5M2);
      expect("operands of auto", DataType::AUTO);
      for (const int other : {0, 1}) {  // all ranks see that one of them differs
        const bool isOther = bootstrap->getRank() == other;
        expect("rank 1 makes a FusedGemm for another layer", isOther ? DataType::FLOAT8_E4M3FN : DataType::BFLOAT16);
        layer.fastAccumulation = isOther;
        expect("rank 1 makes a FusedGemm for another layer", DataType::FLOAT8_E4M3FN);
        layer.fastAccumulation = false;
      }
      layer.fastAccumulation = true;
      expect("leave GemmLayer::fastAccumulation false", DataType::BFLOAT16);
      layer.fastAccumulation = false;

      const auto expectCall = [&](const FusedGemm& gemm, const char* part,
                                  const std::function<void(FusedGemmCall&)>& change) {
        FusedGemmCall call = right;
        change(call);
        expectInvalidUsage(part, [&] { gemm.run(call); });
      };
      layer.operands = DataType::FLOAT8_E4M3FN;
      const auto ofFp8 = makeFusedGemm(communicator, layer, DeviceType::CPU);
      expectCall(*ofFp8, "set FusedGemmCall::inputScales", [](FusedGemmCall& call) { call.inputScales = nullptr; });
      expectCall(*ofFp8, "set FusedGemmCall::weightScales", [](FusedGemmCall& call) { call.weightScales = nullptr; });
      if (collective == GemmCollective::AllGather) {
        // One row: rank 0's, which has a scale. Rank 1 has neither.
        FusedGemmCall oneRow{.weight = operands, .output = output, .rows = 1, .weightScales = scales};
        if (bootstrap->getRank() == 0) {
          expectInvalidUsage("set FusedGemmCall::input, an array of 1 x 8 elements", [&] { ofFp8->run(oneRow); });
          oneRow.input = operands;
          expectInvalidUsage("set FusedGemmCall::inputScales, an array of 1 elements", [&] { ofFp8->run(oneRow); });
          oneRow.inputScales = scales;
        }
        ofFp8->run(oneRow);
      }
      ofFp8->run({.rows = 0});  // which has no rows with scales
      ofFp8->run(right);        // what was refused changed nothing
      layer.operands = DataType::BFLOAT16;
      const auto ofBf16 = makeFusedGemm(communicator, layer, DeviceType::CPU);
      expectCall(*ofBf16, "scales of a layer of bfloat16", [](FusedGemmCall& call) { call.inputScales = nullptr; });
      expectCall(*ofBf16, "scales of a layer of bfloat16", [](FusedGemmCall& call) { call.weightScales = nullptr; });
      expectCall(*ofBf16, "scales of a layer of bfloat16", [](FusedGemmCall& call) { call.rows = 0; });
      bootstrap->barrier();
    }
  });
}

TEST_CASE("fused GEMMs with arrays that are null or not aligned, and of too many rows, on CPU ranks") {
  runAsThreads(2, [](const std::shared_ptr<Bootstrap>& bootstrap) {
    Communicator communicator(bootstrap);
    const bf16 operands[8 * 8] = {};
    bf16 output[8 * 8] = {};
    const auto misaligned = [](const void* array) { return static_cast<const char*>(array) + 1; };
    const FusedGemmCall right{.input = operands, .weight = operands, .output = output, .rows = 8};
    for (const GemmCollective collective : collectives) {
      GemmLayer layer{.collective = collective, .maxRows = 8, .width = 8, .depth = 8};
      const auto gemm = makeFusedGemm(communicator, layer, DeviceType::CPU);
      const auto expect = [&](const char* part, const std::function<void(FusedGemmCall&)>& change) {
        FusedGemmCall call = right;
        change(call);
        expectInvalidUsage(part, [&] { gemm->run(call); });
      };
      expect("set FusedGemmCall::input,", [](FusedGemmCall& call) { call.input = nullptr; });
      expect("set FusedGemmCall::weight, an array of 8 x 8", [](FusedGemmCall& call) { call.weight = nullptr; });
      expect("set FusedGemmCall::output,", [](FusedGemmCall& call) { call.output = nullptr; });
      expect("input must be aligned", [&](FusedGemmCall& call) { call.input = misaligned(operands); });
      expect("weight must be aligned", [&](FusedGemmCall& call) { call.weight = misaligned(operands); });
      expect("output must be aligned to its elements of 2 bytes",
             [&](FusedGemmCall& call) { call.output = const_cast<char*>(misaligned(output)); });
      gemm->run(right);  // what was refused changed nothing
      gemm->run({});

      const auto expectLayer = [&](const GemmLayer& wrong) {
        expectInvalidUsage("at most 4194304 rows", [&] { makeFusedGemm(communicator, wrong, DeviceType::CPU); });
      };
      for (std::size_t* const size : {&layer.maxRows, &layer.width, &layer.depth}) {
        const std::size_t before = std::exchange(*size, std::numeric_limits<std::size_t>::max());
        expectLayer(layer);
        *size = before;
      }
      layer.maxRows = mostFusedGemmRows + 1;
      expectLayer(layer);
      bootstrap->barrier();
    }
  });
}

TEST_CASE("a layer that is wrong on one CPU rank alone is an error on all of them") {
  runAsThreads(2, [](const std::shared_ptr<Bootstrap>& bootstrap) {
    Communicator communicator(bootstrap);
    const GemmLayer right{.collective = GemmCollective::AllGather, .maxRows = 8, .width = 8, .depth = 8};
    for (const int other : {0, 1}) {
      GemmLayer layer = right;
      if (bootstrap->getRank() == other) {
        layer.width = 0;  // which may differ
        expectInvalidUsage("above 0", [&] { makeFusedGemm(communicator, layer, DeviceType::CPU); });
      } else {
        expectError(ErrorCode::RemoteError, "rank " + std::to_string(other) + " failed to state its layer",
                    [&] { makeFusedGemm(communicator, layer, DeviceType::CPU); });
      }
    }
    GemmLayer negative = right;
    negative.maxBlocks = -1;
    expectInvalidUsage("maxBlocks is -1", [&] { makeFusedGemm(communicator, negative, DeviceType::CPU); });
    makeFusedGemm(communicator, right, DeviceType::CPU);
    bootstrap->barrier();
  });
}

TEST_CASE("fused GEMMs for GPUs take no collectives of CPU ranks") {
  runAsThreads(1, [](const std::shared_ptr<Bootstrap>& bootstrap) {
    const auto communicator = std::make_shared<Communicator>(bootstrap);
    const auto collectives = std::make_shared<Collectives>(communicator, DeviceType::CPU);
    CHECK(collectives->deviceType() == DeviceType::CPU);
    const GemmLayer layer{.maxRows = 8, .width = 8, .depth = 8};
    expectInvalidUsage("with Collectives of CPU ranks",
                       [&] { makeFusedGemm(*communicator, layer, DeviceType::GPU, collectives); });
  });
}

TEST_CASE("fused GEMMs with wrong norms on CPU ranks") {
  runAsThreads(2, [&](const std::shared_ptr<Bootstrap>& bootstrap) {
    Communicator communicator(bootstrap);
    const GemmLayer right{.maxRows = 8, .width = 32, .depth = 8, .hasNorm = true};
    const auto expectLayer = [&](const char* part, const std::function<void(GemmLayer&)>& change) {
      GemmLayer layer = right;
      change(layer);
      expectInvalidUsage(part, [&] { makeFusedGemm(communicator, layer, DeviceType::CPU); });
    };
    expectLayer("has no norm", [](GemmLayer& layer) { layer.collective = GemmCollective::AllGather; });
    expectLayer("width 24", [](GemmLayer& layer) { layer.width = 24; });
    expectLayer("width 16400", [](GemmLayer& layer) { layer.width = 16400; });
    for (const int other : {0, 1}) {  // all ranks see that one of them differs
      expectLayer("rank 1 makes a FusedGemm for another layer",
                  [&](GemmLayer& layer) { layer.hasNorm = bootstrap->getRank() == other; });
    }
    expectLayer("rank 1 makes a FusedGemm for another layer",
                [&](GemmLayer& layer) { layer.width += static_cast<std::size_t>(bootstrap->getRank()) * 16; });

    const auto gemm = makeFusedGemm(communicator, right, DeviceType::CPU);
    alignas(16) bf16 data[8 * 32] = {};
    float scales[8];
    const RmsNormCall norm{.residual = data, .weight = data, .normalised = data};
    const auto expect = [&](const char* part, const std::function<void(FusedGemmCall&, RmsNormCall&)>& change) {
      RmsNormCall changed = norm;
      FusedGemmCall call{.input = data, .weight = data, .rows = 8, .norm = &changed};
      change(call, changed);
      expectInvalidUsage(part, [&] { gemm->run(call); });
    };
    expect("set FusedGemmCall::norm", [](FusedGemmCall& call, RmsNormCall&) { call.norm = nullptr; });
    expect("has an output", [&](FusedGemmCall& call, RmsNormCall&) { call.output = data; });
    expect("norm of a fused GEMM: weight is null", [](FusedGemmCall&, RmsNormCall& of) { of.weight = nullptr; });
    expect("residual is not at a multiple of 16", [&](FusedGemmCall&, RmsNormCall& of) { of.residual = data + 1; });
    expect("quantised is null", [](FusedGemmCall&, RmsNormCall& of) { of.quantisation = Quantisation::Fp8PerRow; });
    expect("without a quantisation", [&](FusedGemmCall&, RmsNormCall& of) { of.quantised = data; });
    expect("scales is null", [&](FusedGemmCall&, RmsNormCall& of) {
      of.quantisation = Quantisation::Int8PerRow;
      of.quantised = data;
    });
    expect("pass null as normalised", [&](FusedGemmCall&, RmsNormCall& of) {
      of.quantisation = Quantisation::Int8PerRow;
      of.quantised = data;
      of.scales = scales;
    });
    expect("width 48 of a layer of width 32", [](FusedGemmCall& call, RmsNormCall&) { call.width = 48; });
    GemmLayer without = right;
    without.hasNorm = false;
    const auto plain = makeFusedGemm(communicator, without, DeviceType::CPU);
    expectInvalidUsage("GemmLayer::hasNorm", [&] { plain->run({.rows = 1, .norm = &norm}); });
    bootstrap->barrier();
  });
}
