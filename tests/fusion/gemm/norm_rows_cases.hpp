// Cases of fusion/gemm/norm_rows.hpp: all outputs of a GEMM with residual, RMSNorm and quantisation between the hops.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <type_traits>

#include "gemm_tester.hpp"
#include "mscclpp/fusion/gemm/gemm_reduce.hpp"
#include "mscclpp/fusion/gemm/norm_rows.hpp"

namespace mscclpp::test {

inline constexpr float normEpsilon = 1e-5f;

struct NormSizes {
  std::size_t rows;
  std::size_t width;
  std::size_t depth;
};

/// C: a GemmReduce with this Result, NormRows with the quantisation or AnyNormRows.
template <class C, class Result>
struct NormRowsBody {
  Window<> scratch, epochs, inputs, weights, gains, residuals, hidden, normalised, quantised, scales;
  typename C::Scratch layout;
  NormSizes sizes;
  Quantisation quantisation;
  int ranks;
  BoundedWait wait;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const typename C::Args args{.team = Team<>(rank, ranks),
                                .window = scratch,
                                .epochs = {reinterpret_cast<std::uint64_t*>(epochs.at(rank))},
                                .scratch = layout,
                                .count = sizes.rows,
                                .wait = wait};
    const auto elements = [&](const Window<>& window) { return reinterpret_cast<bf16*>(window.at(rank)); };
    const GemmOperands<bf16, KeepPairs<bf16>> operands{
        makeMatrix<const bf16>(elements(inputs), sizes.rows, sizes.depth),
        makeMatrix<const bf16>(elements(weights), sizes.width, sizes.depth),
        {}};
    const bool isStatic = quantisation == Quantisation::Fp8Static;
    auto* const ownScales = reinterpret_cast<float*>(scales.at(rank));
    const RmsNormArrays<bf16> arrays{.weight = elements(gains),
                                     .epsilon = normEpsilon,
                                     .residual = elements(residuals),
                                     .newResidual = elements(hidden),
                                     .normalised = elements(normalised),
                                     .quantised = quantised.at(rank),
                                     .scales = isStatic ? nullptr : ownScales,
                                     .scale = isStatic ? ownScales : nullptr};
    if constexpr (std::is_same_v<Result, AnyNormRows<bf16>>) {
      C::run(grid, args, operands, Result{sizes.width, quantisation, arrays});
    } else {
      C::run(grid, args, operands, Result{sizes.width, arrays});
    }
  }
};

template <RowDelivery delivery, class Result>
void checkNormRows(int ranks, const NormSizes& sizes, Quantisation quantisation) {
  CAPTURE(ranks);
  CAPTURE(sizes.rows);
  CAPTURE(static_cast<int>(quantisation));
  constexpr bool isScatter = delivery == RowDelivery::ToOwner;
  const bool isQuantised = quantisation != Quantisation::None, isInt = quantisation == Quantisation::Int8PerRow;
  const bool isStatic = quantisation == Quantisation::Fp8Static;
  const std::size_t ofScale = quantisation == Quantisation::Fp8PerGroup ? quantisationGroup : sizes.width;
  const std::size_t scalesOfRow = ceilDivide(sizes.width, ofScale);
  constexpr float staticScale = 0.02f;
  using C =
      GemmReduce<bf16, GemmReduceConfig{.delivery = delivery, .tile = smallTile, .reducerWarps = 1, .packsPerLane = 2},
                 Result>;
  Backend<32> backend;
  const auto layout = C::scratchFor(sizes.rows, sizes.width, ranks);
  const std::size_t slice = isScatter ? C::sliceRows(sizes.rows, ranks) : sizes.rows;
  const std::size_t elements = slice * sizes.width;
  auto scratch = backend.allocate(ranks, layout.windowBytes(), C::Scratch::initialByte);
  auto epochs = backend.allocate(ranks, epochWords * sizeof(std::uint64_t), 0);
  setEpochs(epochs, ranks, C::Scratch::firstEpoch);
  auto inputs = backend.allocate(ranks, sizes.rows * sizes.depth * 2, 0);
  auto weights = backend.allocate(ranks, sizes.width * sizes.depth * 2, 0);
  auto gains = backend.allocate(ranks, sizes.width * 2, 0);
  auto residuals = backend.allocate(ranks, elements * 2, 0);
  auto hidden = backend.allocate(ranks, elements * 2, poisonByte);
  auto normalised = backend.allocate(ranks, elements * 2, poisonByte);
  auto quantised = backend.allocate(ranks, elements, poisonByte);
  auto scales = backend.allocate(ranks, slice * scalesOfRow * sizeof(float), poisonByte);
  const auto gain = randomMatrix<bf16>(1, sizes.width, sizes.width, 7);
  const auto residual = randomMatrix<bf16>(sizes.rows, sizes.width, sizes.width, 8);
  std::vector<RankProduct> products;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto a = randomMatrix<bf16>(sizes.rows, sizes.depth, sizes.depth, static_cast<unsigned>(rank));
    const auto b = randomMatrix<bf16>(sizes.width, sizes.depth, sizes.depth, static_cast<unsigned>(rank) + 100);
    inputs.write(rank, a.data);
    weights.write(rank, b.data);
    gains.write(rank, gain.data);
    if (isStatic) scales.write(rank, &staticScale, sizeof(float));
    products.push_back(RankProduct::of(a, b));
    const Range own = isScatter ? steppedPart(sizes.rows, slice, static_cast<std::size_t>(rank)) : Range{0, sizes.rows};
    residuals.write(rank, residual.data.data() + own.begin * sizes.width, own.size() * sizes.width * 2);
  }
  const NormRowsBody<C, Result> body{scratch.window(),
                                     epochs.window(),
                                     inputs.window(),
                                     weights.window(),
                                     gains.window(),
                                     residuals.window(),
                                     hidden.window(),
                                     normalised.window(),
                                     quantised.window(),
                                     scales.window(),
                                     layout,
                                     sizes,
                                     quantisation,
                                     ranks,
                                     backend.wait()};
  backend.launch({ranks, 1, C::maxBlockThreads / 32, C::sharedBytes({}, {})}, body);
  std::string wrong;
  const auto compare = [&](const char* what, std::size_t row, std::size_t column, double got, double wanted,
                           double bound) {
    if (std::fabs(got - wanted) <= bound || !wrong.empty()) return;
    wrong = std::string(what) + " of row " + std::to_string(row) + ", column " + std::to_string(column) + ": " +
            std::to_string(got) + " instead of " + std::to_string(wanted);
  };
  for (int rank = 0; rank < ranks; ++rank) {
    const auto h = hidden.template read<bf16>(rank), y = normalised.template read<bf16>(rank);
    const auto q = quantised.template read<std::int8_t>(rank);
    const auto scale = scales.template read<float>(rank);
    const Range own = isScatter ? steppedPart(sizes.rows, slice, static_cast<std::size_t>(rank)) : Range{0, sizes.rows};
    for (std::size_t row = own.begin; row < own.end; ++row) {
      const std::size_t first = (row - own.begin) * sizes.width;
      double squares = 0;
      for (std::size_t c = 0; c < sizes.width; ++c) {
        double sum = 0, bound = 0;
        for (const RankProduct& product : products) {
          const double value = product.values[row * sizes.width + c];
          sum += value;
          bound += std::fabs(value) / 256 + fp32Bound(sizes.depth + 2) * product.magnitudes[row * sizes.width + c];
        }
        bound += std::fabs(sum) / 256;
        sum += residual.at(row, c);
        compare("the new residual", row, c, widen<bf16>(h[first + c]), sum, bound + (std::fabs(sum) + bound) / 256);
        squares += std::pow(static_cast<double>(widen<bf16>(h[first + c])), 2);
      }
      // The norm is that of the rows as they were rounded.
      const double factor = 1 / std::sqrt(squares / static_cast<double>(sizes.width) + normEpsilon);
      const auto wantedAt = [&](std::size_t c) {
        return static_cast<double>(widen<bf16>(h[first + c])) * factor * gain.at(0, c);
      };
      for (std::size_t c = 0; c < sizes.width && !isQuantised; ++c) {
        compare("the norm", row, c, widen<bf16>(y[first + c]), wantedAt(c), std::fabs(wantedAt(c)) * 1.01 / 256);
      }
      for (std::size_t begin = 0; begin < sizes.width && isQuantised; begin += ofScale) {
        const std::size_t end = begin + ofScale < sizes.width ? begin + ofScale : sizes.width;
        double largest = 0;
        for (std::size_t c = begin; c < end; ++c) largest = std::fmax(largest, std::fabs(wantedAt(c)));
        const double most = isInt ? 127 : 448;
        const double step = isStatic ? staticScale : scale[(row - own.begin) * scalesOfRow + begin / ofScale];
        if (!isStatic) compare("the scale", row, begin, step, largest / most, largest / most * 1.01 / 256);
        for (std::size_t c = begin; c < end; ++c) {
          const std::int8_t byte = q[first + c];
          const double got = isInt ? byte : static_cast<double>(widen<f8e4m3>(arch::bitCast<f8e4m3>(byte)));
          // bf16, then half a step of int8, or one of the 3 bits of the fraction of fp8.
          const double rounding = isInt ? step / 2 : std::fmax(std::fabs(wantedAt(c)) / 15, step / 1024);
          compare("the quantised norm", row, c, got * step, wantedAt(c),
                  std::fabs(wantedAt(c)) / 200 + rounding * 1.01);
        }
      }
    }
  }
  CHECK_MESSAGE(wrong.empty(), wrong);
  if constexpr (!isScatter) {
    for (int rank = 1; rank < ranks; ++rank) {
      CHECK(hidden.read(rank) == hidden.read(0));
      CHECK(normalised.read(rank) == normalised.read(0));
      CHECK(quantised.read(rank) == quantised.read(0));
      CHECK(scales.read(rank) == scales.read(0));
    }
  }
}

TEST_CASE("GEMM, all-reduce, residual and RMSNorm") {
  checkNormRows<RowDelivery::ToAll, NormRows<bf16>>(2, {37, 72, 40}, Quantisation::None);
}
TEST_CASE("GEMM, reduce-scatter, residual, RMSNorm and int8") {
  checkNormRows<RowDelivery::ToOwner, NormRows<bf16, Quantisation::Int8PerRow>>(3, {35, 304, 24},
                                                                                Quantisation::Int8PerRow);
}
TEST_CASE("GEMM, all-reduce, residual, RMSNorm and fp8") {
  checkNormRows<RowDelivery::ToAll, NormRows<bf16, Quantisation::Fp8PerRow>>(2, {17, 80, 33}, Quantisation::Fp8PerRow);
}
TEST_CASE("GEMM, all-reduce, residual, RMSNorm and a quantisation that is known at run time") {
  for (const auto quantisation : {Quantisation::None, Quantisation::Fp8Static, Quantisation::Fp8PerRow,
                                  Quantisation::Fp8PerGroup, Quantisation::Int8PerRow}) {
    checkNormRows<RowDelivery::ToAll, AnyNormRows<bf16>>(2, {17, 304, 16}, quantisation);
  }
}
TEST_CASE("GEMM, all-reduce in one hop, residual, RMSNorm and a quantisation that is known at run time") {
  for (const auto quantisation : {Quantisation::None, Quantisation::Fp8PerGroup}) {
    checkNormRows<RowDelivery::Redundant, AnyNormRows<bf16>>(3, {5, 144, 16}, quantisation);
  }
}

}  // namespace mscclpp::test
