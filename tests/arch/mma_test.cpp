// arch/mma.hpp on an emulated warp: every element of a product of random matrices.
#include "mscclpp/arch/mma.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <vector>

#include "mscclpp/emulation/launch.hpp"

using namespace mscclpp;

TEST_CASE("arch: a warp multiplies matrices of bfloat16") {
  // Small integers: products and sums are exact.
  const auto valueOf = [](int i) { return static_cast<float>((i * 37 + 11) % 17 - 8); };
  const auto bitsOf = [](float value) { return arch::bitCast<std::uint32_t>(value) >> 16; };
  const auto a = [&](int row, int column) { return valueOf(row * 16 + column); };
  const auto b = [&](int row, int column) { return valueOf(1000 + row * 8 + column); };
  const auto pair = [&](float first, float second) { return bitsOf(first) | bitsOf(second) << 16; };
  std::vector<float> result(16 * 8, -1.0f);
  emulation::launch<32>({.threads = 32}, [&](int, const auto& grid) {
    const auto warp = grid.warp();
    const int g = warp.rank() / 4, t = warp.rank() % 4;
    const auto pairOfA = [&](int row, int column) { return pair(a(row, column), a(row, column + 1)); };
    const auto pairOfB = [&](int row) { return pair(b(row, g), b(row + 1, g)); };
    const std::uint32_t left[4] = {pairOfA(g, 2 * t), pairOfA(g + 8, 2 * t), pairOfA(g, 2 * t + 8),
                                   pairOfA(g + 8, 2 * t + 8)};
    const std::uint32_t right[2] = {pairOfB(2 * t), pairOfB(2 * t + 8)};
    float c[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    arch::multiplyAddBf16(warp, c, left, right);
    for (int i = 0; i < 4; ++i) result[static_cast<std::size_t>((g + i / 2 * 8) * 8 + 2 * t + i % 2)] = c[i];
  });
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float expected = static_cast<float>(row / 8 * 2 + column % 2 + 1);  // what c was before
      for (int k = 0; k < 16; ++k) expected += a(row, k) * b(k, column);
      CHECK(result[static_cast<std::size_t>(row * 8 + column)] == expected);
    }
  }
}
