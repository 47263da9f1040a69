// The transposition of words over four neighbouring lanes, in emulated warps.
#include "mscclpp/fusion/cutlass/quad_exchange.hpp"

#include <doctest/doctest.h>

#include <atomic>

#include "mscclpp/emulation/launch.hpp"

using namespace mscclpp;

namespace {

template <int width>
void checkTransposition() {
  std::atomic<int> wrong = 0;
  emulation::launch<width>({1, 1, width}, [&](int, const auto& grid) {
    const auto warp = grid.warp();
    const auto valueOf = [](int lane, int word) { return static_cast<std::uint32_t>(100 * lane + word); };
    Vector<std::uint32_t, 4> words;
    for (int i = 0; i < 4; ++i) words[i] = valueOf(warp.rank(), i);
    transposeInQuads(warp, words);
    const int quad = warp.rank() / 4 * 4;
    for (int i = 0; i < 4; ++i) wrong += words[i] != valueOf(quad + i, warp.rank() % 4);
  });
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("words of four lanes are transposed") {
  checkTransposition<4>();
  checkTransposition<16>();
  checkTransposition<32>();
}
