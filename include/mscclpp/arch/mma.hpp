// Matrix products of a warp on tensor cores.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "mscclpp/arch/element_kind.hpp"
#include "mscclpp/arch/trap.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// Elements of the depth that multiplyAdd() takes: 32 bytes.
template <ElementKind kind>
inline constexpr int multiplyAddDepth = kind == ElementKind::E4M3 ? 32 : 16;

#if defined(__CUDA_ARCH__)
namespace ptx {

// One row per element kind, with its PTX instruction and the architectures that have it.
template <ElementKind kind>
struct MultiplyAdd;
#define MSCCLPP_ARCH_MULTIPLY_ADD(kind, shape, types, leastArch)                               \
  template <>                                                                                  \
  struct MultiplyAdd<ElementKind::kind> {                                                      \
    MSCCLPP_DEVICE __forceinline__ static void run(float (&c)[4], const std::uint32_t (&a)[4], \
                                                   const std::uint32_t (&b)[2]) {              \
      if constexpr (__CUDA_ARCH__ >= leastArch) {                                              \
        asm volatile("mma.sync.aligned." shape ".row.col.f32." types                           \
                     ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "                          \
                     "%9}, {%0, %1, %2, %3};"                                                  \
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));      \
      } else {                                                                                 \
        trap();                                                                                \
      }                                                                                        \
    }                                                                                          \
  };
MSCCLPP_ARCH_MULTIPLY_ADD(BF16, "m16n8k16", "bf16.bf16", 800)
MSCCLPP_ARCH_MULTIPLY_ADD(F16, "m16n8k16", "f16.f16", 800)
MSCCLPP_ARCH_MULTIPLY_ADD(E4M3, "m16n8k32", "e4m3.e4m3", 890)
#undef MSCCLPP_ARCH_MULTIPLY_ADD

}  // namespace ptx
#else
namespace host {

/// The value of one of the elements of a word.
template <ElementKind kind>
inline MSCCLPP_HOST_DEVICE float valueOf(std::uint32_t word, int element) {
  if constexpr (kind == ElementKind::BF16) {
    return bitCast<float>(element == 0 ? word << 16 : word & 0xffff0000u);  // the upper half of a float
  } else if constexpr (kind == ElementKind::F16) {
    return static_cast<float>(bitCast<__half>(static_cast<std::uint16_t>(word >> 16 * element)));
  } else {
    return static_cast<float>(bitCast<__nv_fp8_e4m3>(static_cast<std::uint8_t>(word >> 8 * element)));
  }
}

}  // namespace host
#endif

/// c += a * b, for a of 16 x K and b of K x 8 elements, and c of 16 x 8 float. BF16 and F16: K = 16 (PTX mma.m16n8k16);
/// E4M3: K = 32 (mma.m16n8k32, from compute capability 8.9 on, a trap on older GPUs). Called by all lanes of a warp of
/// 32. With g = lane / 4 and t = lane % 4, a lane holds words of n = K / 8 consecutive elements:
///   a[0], a[1]: rows g and g + 8, columns from n * t on; a[2], a[3]: the same, K / 2 columns further
///   b[0], b[1]: column g, rows from n * t on, and K / 2 rows further
///   c[0..1], c[2..3]: rows g and g + 8, columns 2t and 2t + 1
/// The GPU's order of additions is not specified, but is the same in every run.
template <ElementKind kind, class Warp>
MSCCLPP_INLINE void multiplyAdd([[maybe_unused]] const Warp& warp, float (&c)[4], const std::uint32_t (&a)[4],
                                const std::uint32_t (&b)[2]) {
  static_assert(kind == ElementKind::BF16 || kind == ElementKind::F16 || kind == ElementKind::E4M3,
                "matrix products are of BF16, F16 or E4M3");
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
    constexpr int depth = multiplyAddDepth<kind>, perWord = depth / 8;
    for (int k = 0; k < depth; ++k) {
      // The lanes with this t hold row k of b, and so column k of a.
      const int half = k / (depth / 2), lane = k % (depth / 2) / perWord, element = k % perWord;
      const float upper = host::valueOf<kind>(wordOf(g * 4 + lane, 2 * half), element);
      const float lower = host::valueOf<kind>(wordOf(g * 4 + lane, 2 * half + 1), element);
      for (int column = 0; column < 2; ++column) {
        const float factor = host::valueOf<kind>(wordOf((2 * t + column) * 4 + lane, 4 + half), element);
        c[column] += upper * factor;
        c[2 + column] += lower * factor;
      }
    }
  }
#endif
}

}  // namespace mscclpp::arch
