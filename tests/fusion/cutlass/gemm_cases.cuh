// Cases of GEMM kernels of CUTLASS that contribute to a row exchange: ranks of one process, over all GPUs in turn.
#pragma once

#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "mscclpp/basic/element.hpp"
#include "mscclpp/fusion/cutlass/evt_row_exchange.cuh"
#include "mscclpp/fusion/cutlass/gemm_row_exchange.cuh"
#include "mscclpp/fusion/cutlass/scaled_product.cuh"
#include "mscclpp/fusion/cutlass/stock_gemm.cuh"
#include "tests/backend/gpu.cuh"
#include "tests/backend/test_data.hpp"
#include "tests/fusion/gemm/random_shapes.hpp"

namespace mscclpp::test {

/// A cooperative kernel in fp8.
inline constexpr CutlassTile fp8Tile{.rows = 128,
                                     .columns = 128,
                                     .depth = 128,
                                     .clusterRows = 1,
                                     .clusterColumns = 2,
                                     .schedule = CutlassSchedule::Cooperative,
                                     .operandBytes = 1};

template <class Output>
using ScaleTree = ScaledProduct<fp8Tile, Output>;
inline constexpr auto setScales = [](auto& tree, const float* rowScales, const float* columnScales) {
  ScaleTree<float>::setScales(tree, rowScales, columnScales);
};

/// out = sum over the ranks of a * b^T, with a of m x k and b of n x k elements on each rank.
struct GemmShape {
  int m, n, k;
};

/// Small numbers, exact in every type that is tested: multiples of 1/8 of at most 1.
inline std::vector<float> gemmValues(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> result(count);
  for (float& value : result) value = static_cast<float>(static_cast<int>(random() % 17) - 8) / 8.0f;
  return result;
}

template <class Element>
std::vector<Element> convertTo(const std::vector<float>& values) {
  std::vector<Element> result;
  result.reserve(values.size());
  for (const float value : values) result.push_back(Element(value));
  return result;
}

/// The inputs of one call on one rank.
struct GemmInputs {
  std::vector<float> a, b, rowScales, columnScales;
};
inline GemmInputs gemmInputs(const GemmShape& shape, unsigned seed, bool isScaled) {
  const auto m = static_cast<std::size_t>(shape.m), n = static_cast<std::size_t>(shape.n),
             k = static_cast<std::size_t>(shape.k);
  GemmInputs inputs{gemmValues(m * k, seed), gemmValues(n * k, seed + 1), std::vector<float>(m, 1.0f),
                    std::vector<float>(n, 1.0f)};
  if (isScaled) {
    for (std::size_t i = 0; i < m; ++i) inputs.rowScales[i] = 0.5f + static_cast<float>(i % 7) / 4.0f;
    for (std::size_t i = 0; i < n; ++i) inputs.columnScales[i] = 0.25f + static_cast<float>(i % 11) / 8.0f;
  }
  return inputs;
}

/// The largest relative error of a rounding to T.
template <class T>
inline constexpr double roundingBound = std::is_same_v<T, bf16> ? 1.0 / 256 : 1.0 / 2048;

/// Whether `output` of `rows` rows of n elements is the sum over the ranks, each part rounded once and the sum once;
/// rowOf(i): the row of the problem that is row i of the output. In double precision; the bound is twice that of the
/// roundings, and of the additions in float.
template <class T, class RowOf>
bool isGemmSum(const GemmShape& shape, const std::vector<GemmInputs>& ranks, const std::vector<T>& output,
               std::size_t rows, const RowOf& rowOf) {
  const auto n = static_cast<std::size_t>(shape.n), depth = static_cast<std::size_t>(shape.k);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t i = rowOf(r);
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0, bound = 0;
      for (const GemmInputs& rank : ranks) {
        const float* const a = &rank.a[i * depth];
        const float* const b = &rank.b[j * depth];
        double part = 0, magnitude = 0;
        for (std::size_t k = 0; k < depth; ++k) {
          part += double{a[k]} * b[k];
          magnitude += std::fabs(double{a[k]} * b[k]);
        }
        const double scale = double{rank.rowScales[i]} * rank.columnScales[j];
        sum += part * scale;
        // Tensor cores of fp8 keep fewer bits of a sum than float.
        bound += std::fabs(part * scale) * roundingBound<T> + magnitude * scale / (1 << 12);
      }
      const double got = widen<T>(output[r * n + j]);
      if (!(std::fabs(got - sum) <= bound + std::fabs(sum) * roundingBound<T>)) {
        MESSAGE("row " << i << ", column " << j << ": " << got << " instead of " << sum);
        return false;
      }
    }
  }
  return true;
}

/// How the kernels of a test run.
struct GemmSchedule {
  int sendingBlocks = 0;  ///< in every second call, of each shape once; in the others, each block sends its own tiles
  int sendingRanks = 1 << 30;  ///< so many ranks have these, the first ones
  int gap = 0;                 ///< elements between the rows of the output
  bool isAlongM = false;       ///< whether columns of tiles, and not rows, follow each other
  int swizzle = 1;
  bool lacksRank = false;  ///< the last rank does not call: the others must end, with a record
};

/// Runs calls of different lengths on one scratch, and checks the whole outputs of all ranks. Kernel: a
/// RowExchangeKernel. scales(arguments, rowScales, columnScales) sets the scales of the epilogue.
template <class Kernel, int Ranks, class SetScales>
void checkGemm(const std::vector<GemmShape>& shapes, bool isScaled, const SetScales& setScales,
               const GemmSchedule& schedule = {}) {
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  using ElementA = typename Kernel::ElementA;
  using ElementB = typename Kernel::ElementB;
  using Scratch = typename Kernel::Scratch;
  using T = typename Kernel::T;
  constexpr bool isScatter = Scratch::delivery == RowDelivery::ToOwner;
  const int n = shapes[0].n;
  int maxRows = 0, maxDepth = 0;
  for (const GemmShape& shape : shapes) {
    maxRows = std::max(maxRows, shape.m);
    maxDepth = std::max(maxDepth, shape.k);
    REQUIRE(shape.n == n);
  }
  const Scratch scratch = Kernel::scratchFor(static_cast<std::size_t>(maxRows), static_cast<std::size_t>(n));
  GpuBackend backend;
  auto windows = backend.allocate(Ranks, scratch.windowBytes(), Scratch::initialByte);
  auto epochs = backend.allocate(Ranks, epochWords * sizeof(std::uint64_t), 0);
  const auto rowsA = static_cast<std::size_t>(maxRows), rowsB = static_cast<std::size_t>(n);
  auto as = backend.allocate(Ranks, rowsA * static_cast<std::size_t>(maxDepth) * sizeof(ElementA), 0);
  auto bs = backend.allocate(Ranks, rowsB * static_cast<std::size_t>(maxDepth) * sizeof(ElementB), 0);
  auto rowScales = backend.allocate(Ranks, rowsA * sizeof(float), 0);
  auto columnScales = backend.allocate(Ranks, rowsB * sizeof(float), 0);
  for (int rank = 0; rank < Ranks; ++rank) {
    epochs.write(rank, std::vector<std::uint64_t>(epochWords, Scratch::firstEpoch));
  }
  const int perGpu = (Ranks + gpuCount() - 1) / gpuCount();
  unsigned seed = 1;
  // Twice: slots are used again, and the bits are the same.
  for (int round = 0; round < 2; ++round) {
    for (std::size_t call = 0; call < shapes.size(); ++call) {
      const GemmShape shape = shapes[call];
      CAPTURE(round);
      CAPTURE(shape.m);
      CAPTURE(shape.k);
      const std::size_t pitch = rowsB + static_cast<std::size_t>(schedule.gap);
      const std::size_t count = static_cast<std::size_t>(shape.m) * pitch;
      auto outputs = backend.allocate(Ranks, (count + 64) * sizeof(T), poisonByte);
      std::vector<GemmInputs> inputs;
      std::vector<Gemm> gemms(Ranks);
      const GpuStreams streams(Ranks);
      for (int rank = 0; rank < Ranks; ++rank) {
        inputs.push_back(gemmInputs(shape, seed += 2, isScaled));
        as.write(rank, convertTo<ElementA>(inputs.back().a));
        bs.write(rank, convertTo<ElementB>(inputs.back().b));
        rowScales.write(rank, inputs.back().rowScales);
        columnScales.write(rank, inputs.back().columnScales);
        setDeviceOfRank(rank);
        typename Gemm::Arguments arguments{};
        arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
        arguments.problem_shape = {shape.m, shape.n, shape.k, 1};
        arguments.mainloop = {reinterpret_cast<const ElementA*>(as.window().at(rank)),
                              {shape.k, cute::Int<1>{}, 0},
                              reinterpret_cast<const ElementB*>(bs.window().at(rank)),
                              {shape.k, cute::Int<1>{}, 0}};
        setScales(arguments.epilogue.thread, reinterpret_cast<const float*>(rowScales.window().at(rank)),
                  reinterpret_cast<const float*>(columnScales.window().at(rank)));
        auto& epilogue = Kernel::exchangeArguments(arguments);
        auto& exchange = epilogue.exchange;
        exchange.team = Team<Ranks>(rank, Ranks);
        exchange.window = makeWindow<Ranks>(windows.window().base, Ranks);
        exchange.epochs = {reinterpret_cast<std::uint64_t*>(epochs.window().at(rank))};
        exchange.scratch = scratch;
        exchange.count = static_cast<std::size_t>(shape.m);
        exchange.wait = schedule.lacksRank ? backend.wait(300'000'000) : backend.wait();
        epilogue.result = {{reinterpret_cast<T*>(outputs.window().at(rank)),
                            Kernel::outputRows(exchange.count, rank).size(), rowsB, pitch}};
        // Ranks that share a GPU must be resident together.
        arguments.hw_info.sm_count = perGpu > 1 ? 32 : 0;
        const bool hasSendingBlocks = (call + static_cast<std::size_t>(round)) % 2 == 0 && rank < schedule.sendingRanks;
        arguments.scheduler.sendingBlocks = hasSendingBlocks ? schedule.sendingBlocks : 0;
        arguments.scheduler.max_swizzle_size = schedule.swizzle;
        using RasterOrder = cute::remove_cvref_t<decltype(arguments.scheduler.raster_order)>;
        if (schedule.isAlongM) arguments.scheduler.raster_order = RasterOrder::AlongM;
        REQUIRE(Gemm::can_implement(arguments) == cutlass::Status::kSuccess);
        REQUIRE(gemms[static_cast<std::size_t>(rank)].initialize(arguments) == cutlass::Status::kSuccess);
      }
      const int callers = schedule.lacksRank ? Ranks - 1 : Ranks;
      for (int rank = 0; rank < callers; ++rank) {
        setDeviceOfRank(rank);
        REQUIRE(gemms[static_cast<std::size_t>(rank)].run(streams[rank]) == cutlass::Status::kSuccess);
      }
      for (int rank = 0; rank < Ranks; ++rank) {
        setDeviceOfRank(rank);
        checkCuda(cudaStreamSynchronize(streams[rank]), "GEMM");
      }
      if (schedule.lacksRank) {
        CHECK(backend.control()->expired != 0);
        return;
      }
      if (backend.control()->expired != 0) FAIL(describe(backend.control()->record));
      for (int rank = 0; rank < Ranks; ++rank) {
        CAPTURE(rank);
        const auto output = outputs.template read<T>(rank);
        const Range present = Kernel::outputRows(static_cast<std::size_t>(shape.m), rank);
        const std::size_t rows = present.size();
        std::vector<T> sums;
        bool isPoisonElsewhere = true;
        for (std::size_t i = 0; i < output.size(); ++i) {
          if (i / pitch < rows && i % pitch < rowsB) {
            sums.push_back(output[i]);
          } else {
            unsigned char bytes[2];
            std::memcpy(bytes, &output[i], 2);
            isPoisonElsewhere &= bytes[0] == poisonByte && bytes[1] == poisonByte;
          }
        }
        CHECK(isGemmSum(shape, inputs, sums, rows, [&](std::size_t row) { return present.begin + row; }));
        CHECK(isPoisonElsewhere);
        if (!isScatter) {
          const auto first = outputs.template read<T>(0);
          CHECK(std::memcmp(output.data(), first.data(), count * sizeof(T)) == 0);
        }
      }
    }
  }
}

/// The same with random shapes. Few steps each: what varies are edges, and the numbers of tiles. The columns of a
/// scratch are fixed.
template <class Kernel, int Ranks, class SetScales>
void checkRandomGemms(unsigned seed, const SetScales& setScales, const GemmSchedule& schedule = {}) {
  constexpr int widths = 10;
  std::mt19937 random(seed);
  const auto atMost = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)) + 1; };
  for (int i = 0; i < widths; ++i) {
    std::vector<GemmShape> shapes(static_cast<std::size_t>(std::max(1, randomShapes() / widths)));
    const int n = 8 * atMost(50);
    for (GemmShape& shape : shapes) shape = {atMost(300), n, 8 * atMost(9)};
    checkGemm<Kernel, Ranks>(shapes, false, setScales, schedule);
  }
}

/// Whether a kernel takes so many sending blocks; the rest of its arguments do not matter.
template <class Kernel>
bool acceptsSendingBlocks(int sendingBlocks, int blocks = 0) {
  typename Kernel::Arguments arguments{};
  arguments.hw_info.sm_count = blocks;
  arguments.scheduler.sendingBlocks = sendingBlocks;
  return Kernel::acceptsSendingBlocks(arguments);
}

}  // namespace mscclpp::test
