// MSCCL++'s element types, vectors of them, and what it does with these.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <type_traits>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/device.hpp"
#include "mscclpp/fp8_e4m3b15.hpp"

using __bfloat16 = __nv_bfloat16;
using __bfloat162 = __nv_bfloat162;
using __fp8_e4m3 = __nv_fp8_e4m3;
using __fp8_e5m2 = __nv_fp8_e5m2;
using __fp8x2_e4m3 = __nv_fp8x2_e4m3;
using __fp8x2_e5m2 = __nv_fp8x2_e5m2;
using __fp8x4_e4m3 = __nv_fp8x4_e4m3;
using __fp8x4_e5m2 = __nv_fp8x4_e5m2;

namespace mscclpp {

namespace detail {

/// CUDA's own type for N elements of T, where it has one that is plain bytes; else words.
template <typename T, int N>
struct StorageOf {
  using Type = std::conditional_t<(sizeof(T) * N < 4), Vector<T, N>, Vector<std::uint32_t, (sizeof(T) * N + 3) / 4>>;
};
template <typename T>
struct StorageOf<T, 1> {
  using Type = T;
};
// clang-format off
template <> struct StorageOf<std::int32_t, 2> { using Type = int2; };
template <> struct StorageOf<std::int32_t, 4> { using Type = int4; };
template <> struct StorageOf<std::uint32_t, 2> { using Type = uint2; };
template <> struct StorageOf<std::uint32_t, 4> { using Type = uint4; };
template <> struct StorageOf<float, 2> { using Type = float2; };
template <> struct StorageOf<float, 4> { using Type = float4; };
template <> struct StorageOf<__half, 2> { using Type = __half2_raw; };
template <> struct StorageOf<__bfloat16, 2> { using Type = __nv_bfloat162_raw; };
template <> struct StorageOf<__fp8_e4m3, 2> { using Type = __fp8x2_e4m3; };
template <> struct StorageOf<__fp8_e4m3, 4> { using Type = __fp8x4_e4m3; };
template <> struct StorageOf<__fp8_e5m2, 2> { using Type = __fp8x2_e5m2; };
template <> struct StorageOf<__fp8_e5m2, 4> { using Type = __fp8x4_e5m2; };
// clang-format on

template <int Bytes>
using WordsOf = std::conditional_t<Bytes % 4 == 0, std::uint32_t[(Bytes + 3) / 4], std::uint16_t[Bytes / 2]>;

}  // namespace detail

/// N elements of T, as such, as words, or as CUDA's vector.
template <typename T, int N>
union alignas(alignof(Vector<T, N>)) VectorType {
  using ElementType = T;
  using Element = T;
  static constexpr int Size = N;
  static constexpr int size = N;

  T data[N];
  detail::WordsOf<sizeof(T) * N> words;
  typename detail::StorageOf<T, N>::Type storage;

  MSCCLPP_HOST_DEVICE_INLINE T& operator[](int i) { return data[i]; }
  MSCCLPP_HOST_DEVICE_INLINE const T& operator[](int i) const { return data[i]; }
};
static_assert(std::is_trivially_copyable_v<VectorType<__half, 2>> && sizeof(VectorType<__half, 2>) == 4);

using i32x1 = VectorType<std::int32_t, 1>;
using i32x2 = VectorType<std::int32_t, 2>;
using i32x4 = VectorType<std::int32_t, 4>;
using u32x1 = VectorType<std::uint32_t, 1>;
using u32x2 = VectorType<std::uint32_t, 2>;
using u32x4 = VectorType<std::uint32_t, 4>;
using u8x2 = VectorType<std::uint8_t, 2>;
using u8x4 = VectorType<std::uint8_t, 4>;
using f32x1 = VectorType<float, 1>;
using f32x2 = VectorType<float, 2>;
using f32x4 = VectorType<float, 4>;
using f32x8 = VectorType<float, 8>;
using f32x16 = VectorType<float, 16>;
using f64x1 = VectorType<double, 1>;
using f16x2 = VectorType<__half, 2>;
using f16x4 = VectorType<__half, 4>;
using f16x8 = VectorType<__half, 8>;
using f16x16 = VectorType<__half, 16>;
using bf16x2 = VectorType<__bfloat16, 2>;
using bf16x4 = VectorType<__bfloat16, 4>;
using bf16x8 = VectorType<__bfloat16, 8>;
using f8_e4m3x2 = VectorType<__fp8_e4m3, 2>;
using f8_e4m3x4 = VectorType<__fp8_e4m3, 4>;
using f8_e4m3x8 = VectorType<__fp8_e4m3, 8>;
using f8_e4m3x16 = VectorType<__fp8_e4m3, 16>;
using f8_e5m2x2 = VectorType<__fp8_e5m2, 2>;
using f8_e5m2x4 = VectorType<__fp8_e5m2, 4>;
using f8_e5m2x8 = VectorType<__fp8_e5m2, 8>;
using f8_e5m2x16 = VectorType<__fp8_e5m2, 16>;
using f8_e4m3b15x2 = VectorType<__fp8_e4m3b15, 2>;
using f8_e4m3b15x4 = VectorType<__fp8_e4m3b15, 4>;
using f8_e4m3b15x8 = VectorType<__fp8_e4m3b15, 8>;
using f8_e4m3b15x16 = VectorType<__fp8_e4m3b15, 16>;

/// The same bytes as another type.
template <typename To, typename From>
MSCCLPP_HOST_DEVICE_INLINE To bit_cast(const From& source) {
  return arch::bitCast<To>(source);
}

/// An infinity of a 16-bit type as its largest finite value; anything else as it is.
template <typename T>
MSCCLPP_HOST_DEVICE_INLINE T clip(T value) {
  if constexpr (std::is_same_v<T, __half> || std::is_same_v<T, __bfloat16>) {
    const std::uint32_t infinity = std::is_same_v<T, __half> ? 0x7c00u : 0x7f80u;
    const std::uint32_t bits = arch::bitCast<std::uint16_t>(value);
    if ((bits & 0x7fffu) == infinity) return arch::bitCast<T>(static_cast<std::uint16_t>(bits - 1));
  }
  return value;
}

/// Element by element, rounded once; with UseClip infinities of 16-bit types become finite.
template <bool UseClip = true, typename T, int N>
MSCCLPP_HOST_DEVICE_INLINE VectorType<T, N> operator+(const VectorType<T, N>& a, const VectorType<T, N>& b) {
  VectorType<T, N> sum;
  MSCCLPP_UNROLL
  for (int i = 0; i < N; ++i) {
    const T element = narrow<T>(static_cast<Accumulator<T>>(widen<T>(a.data[i]) + widen<T>(b.data[i])));
    sum.data[i] = UseClip ? clip(element) : element;
  }
  return sum;
}

template <typename T, int N>
MSCCLPP_HOST_DEVICE_INLINE VectorType<T, N> min(const VectorType<T, N>& a, const VectorType<T, N>& b) {
  VectorType<T, N> least;
  MSCCLPP_UNROLL
  for (int i = 0; i < N; ++i) least.data[i] = widen<T>(b.data[i]) < widen<T>(a.data[i]) ? b.data[i] : a.data[i];
  return least;
}

/// A vector, or an element, of another type: rounded to nearest even, fp8 saturated.
template <typename To, typename From>
MSCCLPP_HOST_DEVICE_INLINE To to(const From& from) {
  if constexpr (requires { To::Size; }) {
    static_assert(To::Size == From::Size, "a conversion keeps the number of elements");
    To result;
    MSCCLPP_UNROLL
    for (int i = 0; i < To::Size; ++i) result.data[i] = to<typename To::ElementType>(from.data[i]);
    return result;
  } else {
    return narrow<To>(static_cast<Accumulator<To>>(widen<From>(from)));
  }
}

}  // namespace mscclpp
