// MSCCL++'s vector types.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <concepts>
#include <type_traits>

#include "mscclpp/basic/vector.hpp"
#include "mscclpp/device.hpp"
#include "mscclpp/fp8_e4m3b15.hpp"

/// The fp8 types of CUDA and MSCCL++ are available.
#define __FP8_TYPES_EXIST__

using __bfloat16 = __nv_bfloat16;
using __bfloat162 = __nv_bfloat162;
using __fp8_e4m3 = __nv_fp8_e4m3;
using __fp8_e5m2 = __nv_fp8_e5m2;
using __fp8x2_e4m3 = __nv_fp8x2_e4m3;
using __fp8x2_e5m2 = __nv_fp8x2_e5m2;
using __fp8x4_e4m3 = __nv_fp8x4_e4m3;
using __fp8x4_e5m2 = __nv_fp8x4_e5m2;

namespace mscclpp {

/// The storage of vectors for which CUDA has no type: words of 32 bits.
template <int Bytes>
struct alignas(16) Words {
  static_assert(Bytes % 16 == 0, "Words come in multiples of 16 bytes");
  std::uint32_t w[Bytes / 4];

  MSCCLPP_HOST_DEVICE_INLINE std::uint32_t& operator[](int i) { return w[i]; }
  MSCCLPP_HOST_DEVICE_INLINE const std::uint32_t& operator[](int i) const { return w[i]; }
};

namespace detail {

/// A word of `Bytes` bytes.
template <int Bytes>
struct StorageOfBytes {
  using Type = Words<Bytes>;
};
// clang-format off
template <> struct StorageOfBytes<1> { using Type = std::uint8_t; };
template <> struct StorageOfBytes<2> { using Type = std::uint16_t; };
template <> struct StorageOfBytes<4> { using Type = std::uint32_t; };
template <> struct StorageOfBytes<8> { using Type = uint2; };
template <> struct StorageOfBytes<16> { using Type = uint4; };

/// CUDA's own type for N elements of T, where it has one.
template <typename T, int N> struct StorageOf : StorageOfBytes<static_cast<int>(sizeof(T)) * N> {};
template <typename T> requires std::is_arithmetic_v<T> struct StorageOf<T, 1> { using Type = T; };
template <> struct StorageOf<std::int32_t, 2> { using Type = int2; };
template <> struct StorageOf<std::int32_t, 4> { using Type = int4; };
template <> struct StorageOf<float, 2> { using Type = float2; };
template <> struct StorageOf<float, 4> { using Type = float4; };
template <> struct StorageOf<__half, 2> { using Type = __half2; };
template <> struct StorageOf<__bfloat16, 2> { using Type = __bfloat162; };
template <> struct StorageOf<__fp8_e4m3, 2> { using Type = __fp8x2_e4m3; };
template <> struct StorageOf<__fp8_e4m3, 4> { using Type = __fp8x4_e4m3; };
template <> struct StorageOf<__fp8_e5m2, 2> { using Type = __fp8x2_e5m2; };
template <> struct StorageOf<__fp8_e5m2, 4> { using Type = __fp8x4_e5m2; };
template <> struct StorageOf<__fp8_e4m3b15, 2> { using Type = __fp8x2_e4m3b15; };
template <> struct StorageOf<__fp8_e4m3b15, 4> { using Type = __fp8x4_e4m3b15; };

/// The type of a member in a trivially copyable union: CUDA's pairs of 16-bit floats are not trivially copyable.
template <typename Storage> struct MemberOf { using Type = Storage; };
template <> struct MemberOf<__half2> { using Type = __half2_raw; };
template <> struct MemberOf<__bfloat162> { using Type = __nv_bfloat162_raw; };
// clang-format on

template <int Bytes>
using WordsOf =
    std::conditional_t<Bytes % 4 == 0, std::uint32_t[(Bytes + 3) / 4],
                       std::conditional_t<Bytes % 2 == 0, std::uint16_t[(Bytes + 1) / 2], std::uint8_t[Bytes]>>;

}  // namespace detail

/// N elements of T, also accessible as words or as Storage. Converts to and from Storage.
template <typename T, int N, typename Storage>
union alignas(alignof(Vector<T, N>)) VectorTypeImpl {
  using ElementType = T;
  using Element = T;
  using StorageType = Storage;
  static constexpr int Size = N;
  static constexpr int size = N;

  T data[N];
  detail::WordsOf<static_cast<int>(sizeof(T)) * N> words;
  typename detail::MemberOf<Storage>::Type storage;

  VectorTypeImpl() = default;
  MSCCLPP_HOST_DEVICE_INLINE VectorTypeImpl(const Storage& value) : storage(value) {}
  MSCCLPP_HOST_DEVICE_INLINE VectorTypeImpl(const T (&elements)[N]) requires(N > 1) {
    MSCCLPP_UNROLL
    for (int i = 0; i < N; ++i) data[i] = elements[i];
  }

  MSCCLPP_HOST_DEVICE_INLINE operator Storage() const { return storage; }
  MSCCLPP_HOST_DEVICE_INLINE operator T*() { return data; }
  MSCCLPP_HOST_DEVICE_INLINE operator const T*() const { return data; }

  // For every index type: with int alone, a long would be ambiguous with the conversion to a pointer.
  template <std::integral Index>
  MSCCLPP_HOST_DEVICE_INLINE T& operator[](Index i) {
    return data[i];
  }
  template <std::integral Index>
  MSCCLPP_HOST_DEVICE_INLINE const T& operator[](Index i) const {
    return data[i];
  }
};

/// Names the storage of a vector.
template <typename T, int N>
struct VectorTypeHelper {
  using type = VectorTypeImpl<T, N, typename detail::StorageOf<T, N>::Type>;
};
template <typename T, int N>
using VectorType = typename VectorTypeHelper<T, N>::type;
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

}  // namespace mscclpp
