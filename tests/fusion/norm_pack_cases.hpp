// Cases of fusion/norm_pack.hpp: results of packs of any bits, compared bit by bit with plain float arithmetic.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "mscclpp/arch/wide.hpp"
#include "mscclpp/fusion/norm_pack.hpp"
#include "mscclpp/fusion/quantise.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

template <class T>
struct NormPackBody {
  Window<> sums, residuals, weights, hidden, normalised, rounded, squares, magnitudes;
  std::size_t packs;
  float factor;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    using Bytes = Vector<f8e4m3, packSize<T>>;
    const auto packAt = [&](const Window<>& window, std::size_t i) {
      return fromWord<T>(arch::loadWide(reinterpret_cast<const Word128*>(window.at(rank)) + i));
    };
    const auto storeAt = [&](const Window<>& window, std::size_t i, const Pack<T>& pack) {
      arch::storeWide(reinterpret_cast<Word128*>(window.at(rank)) + i, toWord<T>(pack));
    };
    const auto block = grid.block();
    for (std::size_t i = block.rank(); i < packs; i += block.size()) {
      const auto h = norm::addResidual<T>(packAt(sums, i), packAt(residuals, i));
      const auto y = norm::normalise<T>(h, factor, packAt(weights, i));
      storeAt(hidden, i, h);
      storeAt(normalised, i, y);
      reinterpret_cast<Bytes*>(rounded.at(rank))[i] = quantise::round<f8e4m3, T>(y, 0.5f);
      reinterpret_cast<float*>(squares.at(rank))[i] = norm::addSquares<T>(0.25f, h);
      reinterpret_cast<std::uint32_t*>(magnitudes.at(rank))[i] = quantise::largestMagnitude<T>(y);
    }
  }
};

/// `value`, or the canonical NaN.
inline float canonical(float value) {
  return std::isnan(value) ? arch::bitCast<float>(0x7fffffffu) : value;
}

TEST_CASE_TEMPLATE("norm_pack: every function, with elements of any bits", T, bf16, f16) {
  Backend<> backend;
  constexpr std::size_t packs = 512, size = packSize<T>, count = packs * size;
  constexpr float factor = 0.37f;
  const auto sum = randomBits<T>(count, 1), residual = randomBits<T>(count, 2), weight = randomBits<T>(count, 3);
  const auto make = [&](std::size_t bytes) { return backend.allocate(1, bytes, poisonByte); };
  auto sums = make(count * sizeof(T)), residuals = make(count * sizeof(T)), weights = make(count * sizeof(T));
  auto hidden = make(count * sizeof(T)), normalised = make(count * sizeof(T)), rounded = make(count);
  auto squares = make(packs * sizeof(float)), magnitudes = make(packs * sizeof(std::uint32_t));
  sums.write(0, sum);
  residuals.write(0, residual);
  weights.write(0, weight);
  backend.launch({1, 1, 1}, NormPackBody<T>{sums.window(), residuals.window(), weights.window(), hidden.window(),
                                            normalised.window(), rounded.window(), squares.window(),
                                            magnitudes.window(), packs, factor});
  std::vector<T> wantedHidden, wantedNormalised;
  std::vector<f8e4m3> wantedRounded;
  std::vector<float> wantedSquares;
  std::vector<std::uint32_t> wantedMagnitudes;
  std::size_t notNumbers = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const T h = narrow<T>(canonical(widen<T>(sum[i]) + widen<T>(residual[i])));
    const T y = narrow<T>(canonical(widen<T>(h) * factor * widen<T>(weight[i])));
    if (i % size == 0) {
      wantedSquares.push_back(0.25f);
      wantedMagnitudes.push_back(0);
    }
    wantedHidden.push_back(h);
    wantedNormalised.push_back(y);
    wantedRounded.push_back(narrow<f8e4m3>(widen<T>(y) * 0.5f));
    wantedSquares.back() = std::fma(widen<T>(h), widen<T>(h), wantedSquares.back());
    const auto magnitude = arch::bitCast<std::uint32_t>(widen<T>(y)) & 0x7fffffffu;
    wantedMagnitudes.back() = std::max(wantedMagnitudes.back(), magnitude);
    notNumbers += std::isnan(widen<T>(sum[i]));
  }
  CHECK(notNumbers > 0);
  CHECK(firstDifference(hidden.template read<T>(0), wantedHidden) == -1);
  CHECK(firstDifference(normalised.template read<T>(0), wantedNormalised) == -1);
  CHECK(firstDifference(rounded.template read<f8e4m3>(0), wantedRounded) == -1);
  CHECK(magnitudes.template read<std::uint32_t>(0) == wantedMagnitudes);
  const auto ownSquares = squares.template read<float>(0);
  for (std::size_t i = 0; i < packs; ++i) {
    CHECK((ownSquares[i] == wantedSquares[i] || (std::isnan(ownSquares[i]) && std::isnan(wantedSquares[i]))));
  }
}

}  // namespace mscclpp::test
