// Matrix products of a warp on tensor cores.
#pragma once

#include <cuda_fp16.h>

#include "mscclpp/arch/element_kind.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

#if defined(__CUDA_ARCH__)
namespace ptx {

// One row per element kind, with its PTX instruction.
template <ElementKind kind>
struct MultiplyAdd;
#define MSCCLPP_ARCH_MULTIPLY_ADD(kind, text)                                                  \
  template <>                                                                                  \
  struct MultiplyAdd<ElementKind::kind> {                                                      \
    MSCCLPP_DEVICE __forceinline__ static void run(float (&c)[4], const std::uint32_t (&a)[4], \
                                                   const std::uint32_t (&b)[2]) {              \
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." text                               \
                   ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "                            \
                   "%9}, {%0, %1, %2, %3};"                                                    \
                   : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                            \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));        \
    }                                                                                          \
  };
MSCCLPP_ARCH_MULTIPLY_ADD(BF16, "bf16.bf16")
MSCCLPP_ARCH_MULTIPLY_ADD(F16, "f16.f16")
#undef MSCCLPP_ARCH_MULTIPLY_ADD

}  // namespace ptx
#else
namespace host {

/// The value of one of the two elements of a word.
template <ElementKind kind>
inline MSCCLPP_HOST_DEVICE float valueOf(std::uint32_t pair, int half) {
  if constexpr (kind == ElementKind::BF16) {
    return bitCast<float>(half == 0 ? pair << 16 : pair & 0xffff0000u);  // the upper half of a float
  } else {
    return static_cast<float>(bitCast<__half>(static_cast<std::uint16_t>(half == 0 ? pair : pair >> 16)));
  }
}

}  // namespace host
#endif

/// c += a * b, for a of 16 x 16 and b of 16 x 8 elements, BF16 or F16, and c of 16 x 8 float (PTX mma.m16n8k16). Called
/// by all lanes of a warp of 32. With g = lane / 4 and t = lane % 4, a lane holds pairs of consecutive elements:
///   a[0], a[1]: rows g and g + 8, columns 2t and 2t + 1; a[2], a[3]: the same, 8 columns further
///   b[0], b[1]: column g, rows 2t and 2t + 1, and 8 rows further
///   c[0..1], c[2..3]: rows g and g + 8, columns 2t and 2t + 1
/// The GPU's order of additions is not specified, but is the same in every run.
template <ElementKind kind, class Warp>
MSCCLPP_INLINE void multiplyAdd([[maybe_unused]] const Warp& warp, float (&c)[4], const std::uint32_t (&a)[4],
                                const std::uint32_t (&b)[2]) {
  static_assert(kind == ElementKind::BF16 || kind == ElementKind::F16, "matrix products are of BF16 or F16");
  static_assert(Warp::width == 32, "a matrix product needs a warp of 32 lanes");
#if defined(__CUDA_ARCH__)
  ptx::MultiplyAdd<kind>::run(c, a, b);
#else
  const std::uint32_t own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  // Warps of GPUs are compiled for the host too, but do not run there.
  if constexpr (requires { warp.exchange(own); }) {
    const std::uint32_t* const all = warp.exchange(own);
    const auto wordOf = [&](int lane, int word) { return all[lane * 6 + word]; };
    const int g = warp.rank() / 4;
    const int t = warp.rank() % 4;
    for (int k = 0; k < 16; ++k) {
      // Row k of b is with the lanes whose t is k % 8 / 2, and so is column k of a.
      const int lane = k % 8 / 2;
      const float upper = host::valueOf<kind>(wordOf(g * 4 + lane, k < 8 ? 0 : 2), k % 2);
      const float lower = host::valueOf<kind>(wordOf(g * 4 + lane, k < 8 ? 1 : 3), k % 2);
      for (int column = 0; column < 2; ++column) {
        const float factor = host::valueOf<kind>(wordOf((2 * t + column) * 4 + lane, 4 + k / 8), k % 2);
        c[column] += upper * factor;
        c[2 + column] += lower * factor;
      }
    }
  }
#endif
}

}  // namespace mscclpp::arch
