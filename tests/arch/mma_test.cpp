// arch/mma.hpp, load_matrix.hpp and async_copy.hpp on an emulated warp: every element of a product of random matrices,
// by way of shared memory.
#include "mscclpp/arch/mma.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "mscclpp/arch/async_copy.hpp"
#include "mscclpp/arch/load_matrix.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/emulation/launch.hpp"

using namespace mscclpp;

namespace {

/// Small integers: products and sums are exact.
float valueAt(int i) {
  return static_cast<float>((i * 37 + 11) % 17 - 8);
}

/// Multiplies a, 16 x K, with the transpose of b, 8 x K, both row-major, of rows of 32 bytes. Columns from `depth` on
/// count as 0.
template <class T, arch::ElementKind kind>
std::vector<float> multiply(int depth) {
  constexpr int columns = arch::multiplyAddDepth<kind>, perPack = columns / 2;
  static_assert(columns * sizeof(T) == 32);
  alignas(16) T a[16 * columns];
  alignas(16) T b[16 * columns];  // rows from 8 on are loaded, and not used
  for (int i = 0; i < 16 * columns; ++i) {
    a[i] = narrow<T>(valueAt(i));
    b[i] = narrow<T>(valueAt(1000 + i));
  }
  std::vector<float> result(16 * 8, -1.0f);
  emulation::launch<32>({.threads = 32, .sharedBytes = 1024}, [&](int, const auto& grid) {
    const auto warp = grid.warp();
    std::byte* const shared = grid.sharedMemory();
    // A lane copies half a row of each matrix.
    const int column = warp.rank() % 2 * perPack;
    const int valid = depth - column < 0 ? 0 : depth - column > perPack ? perPack : depth - column;
    const auto bytes = static_cast<std::uint32_t>(valid) * static_cast<std::uint32_t>(sizeof(T));
    arch::copyAsync(shared + warp.rank() * 16, a + warp.rank() * perPack, bytes);
    arch::copyAsyncCommit();
    arch::copyAsync(shared + 512 + warp.rank() * 16, b + warp.rank() * perPack, bytes);
    arch::copyAsyncCommit();
    arch::copyAsyncWait<0>();
    warp.sync();
    std::uint32_t left[4], both[4];
    arch::loadMatrices(warp, left,
                       [&](int lane) { return shared + (lane / 8 % 2 * 8 + lane % 8) * 32 + lane / 16 * 16; });
    arch::loadMatrices(warp, both,
                       [&](int lane) { return shared + 512 + (lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16; });
    const std::uint32_t right[2] = {both[0], both[1]};
    float c[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    arch::multiplyAdd<kind>(warp, c, left, right);
    const int g = warp.rank() / 4, t = warp.rank() % 4;
    for (int i = 0; i < 4; ++i) result[static_cast<std::size_t>((g + i / 2 * 8) * 8 + 2 * t + i % 2)] = c[i];
  });
  return result;
}

/// columns: K.
std::vector<float> expected(int columns, int depth) {
  std::vector<float> result;
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float sum = static_cast<float>(row / 8 * 2 + column % 2 + 1);  // what c was before
      for (int k = 0; k < depth; ++k) sum += valueAt(row * columns + k) * valueAt(1000 + column * columns + k);
      result.push_back(sum);
    }
  }
  return result;
}

}  // namespace

TEST_CASE("arch: a warp multiplies matrices that it has copied to shared memory") {
  for (const int depth : {16, 11, 8, 3}) {
    CAPTURE(depth);
    CHECK(multiply<bf16, arch::ElementKind::BF16>(depth) == expected(16, depth));
    CHECK(multiply<f16, arch::ElementKind::F16>(depth) == expected(16, depth));
  }
  for (const int depth : {32, 27, 16, 5}) {
    CAPTURE(depth);
    CHECK(multiply<f8e4m3, arch::ElementKind::E4M3>(depth) == expected(32, depth));
  }
}
TEST_CASE("arch: a copy to shared memory is complete only after the wait for its group") {
  alignas(16) const std::uint32_t from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  alignas(16) std::uint32_t to[8] = {};
  arch::copyAsync(to, from, 16);
  arch::copyAsyncCommit();
  arch::copyAsync(to + 4, from + 4, 8);
  arch::copyAsyncCommit();
  CHECK(to[0] == 0);
  arch::copyAsyncWait<1>();
  CHECK(std::memcmp(to, from, 16) == 0);
  CHECK(to[4] == 0);
  arch::copyAsyncWait<0>();
  CHECK(to[5] == 6);
  CHECK(to[6] == 0);
}
