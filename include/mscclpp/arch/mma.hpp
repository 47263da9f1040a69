// Matrix products of a warp on tensor cores.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

#if !defined(__CUDA_ARCH__)
namespace host {

/// The value of a bfloat16, which is the upper half of a float.
inline MSCCLPP_HOST_DEVICE float valueOfBf16(std::uint32_t pair, int half) {
  return bitCast<float>((half == 0 ? pair << 16 : pair & 0xffff0000u));
}

}  // namespace host
#endif

/// c += a * b, for a of 16 x 16 and b of 16 x 8 bfloat16 and c of 16 x 8 float (PTX mma.m16n8k16). Called by all lanes
/// of a warp of 32. With g = lane / 4 and t = lane % 4, a lane holds pairs of consecutive elements:
///   a[0], a[1]: rows g and g + 8, columns 2t and 2t + 1; a[2], a[3]: the same, 8 columns further
///   b[0], b[1]: column g, rows 2t and 2t + 1, and 8 rows further
///   c[0..1], c[2..3]: rows g and g + 8, columns 2t and 2t + 1
/// The GPU's order of additions is not specified.
template <class Warp>
MSCCLPP_INLINE void multiplyAddBf16([[maybe_unused]] const Warp& warp, float (&c)[4], const std::uint32_t (&a)[4],
                                    const std::uint32_t (&b)[2]) {
  static_assert(Warp::width == 32, "a matrix product needs a warp of 32 lanes");
#if defined(__CUDA_ARCH__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  const int g = warp.rank() / 4;
  const int t = warp.rank() % 4;
  for (int k = 0; k < 16; ++k) {
    // Row k of b is with the lanes whose t is k % 8 / 2, and so is column k of a.
    const int lane = k % 8 / 2;
    const int half = k % 2;
    const std::uint32_t upper = warp.shuffle(a[k < 8 ? 0 : 2], g * 4 + lane);
    const std::uint32_t lower = warp.shuffle(a[k < 8 ? 1 : 3], g * 4 + lane);
    for (int column = 0; column < 2; ++column) {
      const float factor = host::valueOfBf16(warp.shuffle(b[k / 8], (2 * t + column) * 4 + lane), half);
      c[column] += host::valueOfBf16(upper, half) * factor;
      c[2 + column] += host::valueOfBf16(lower, half) * factor;
    }
  }
#endif
}

}  // namespace mscclpp::arch
