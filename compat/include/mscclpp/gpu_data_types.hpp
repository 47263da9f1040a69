// MSCCL++'s element types, vectors of them, and their arithmetic and conversions.
#pragma once

#include <cstring>
#include <type_traits>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/device.hpp"
#include "mscclpp/fp8_e4m3b15.hpp"
#include "mscclpp/vector_type.hpp"

namespace mscclpp {

/// The bytes of `source` as a To, also for types that are not trivially copyable to C++, such as __half2.
template <typename To, typename From>
MSCCLPP_HOST_DEVICE_INLINE To bit_cast(const From& source) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast needs types of the same size");
  To result;
  memcpy(static_cast<void*>(&result), static_cast<const void*>(&source), sizeof(To));
  return result;
}

/// Replaces an infinity of a 16-bit type, or of a pair of them, by the largest finite value; other values are
/// unchanged.
template <typename T>
MSCCLPP_HOST_DEVICE_INLINE T clip(T value) {
  if constexpr (std::is_same_v<T, __half> || std::is_same_v<T, __bfloat16>) {
    const std::uint32_t infinity = std::is_same_v<T, __half> ? 0x7c00u : 0x7f80u;
    const std::uint32_t bits = arch::bitCast<std::uint16_t>(value);
    if ((bits & 0x7fffu) == infinity) return arch::bitCast<T>(static_cast<std::uint16_t>(bits - 1));
  } else if constexpr (std::is_same_v<T, __half2> || std::is_same_v<T, __bfloat162>) {
    return T(clip(value.x), clip(value.y));
  }
  return value;
}

namespace detail {

/// The fp8 types, which have no operators of their own.
template <typename T>
concept Fp8Element = std::is_same_v<T, __fp8_e4m3> || std::is_same_v<T, __fp8_e5m2> || std::is_same_v<T, __fp8_e4m3b15>;

template <bool UseClip, typename T>
MSCCLPP_HOST_DEVICE_INLINE T addElements(T a, T b) {
  const T sum = narrow<T>(static_cast<Accumulator<T>>(widen<T>(a) + widen<T>(b)));
  return UseClip ? clip(sum) : sum;
}

}  // namespace detail

/// The sum, rounded once and saturated.
template <bool UseClip = true, detail::Fp8Element T>
MSCCLPP_HOST_DEVICE_INLINE T operator+(const T& a, const T& b) {
  return detail::addElements<UseClip>(a, b);
}

/// Element by element, rounded once; with UseClip infinities of 16-bit types become finite.
template <bool UseClip = true, typename T, int N, typename Storage>
MSCCLPP_HOST_DEVICE_INLINE VectorTypeImpl<T, N, Storage> operator+(const VectorTypeImpl<T, N, Storage>& a,
                                                                   const VectorTypeImpl<T, N, Storage>& b) {
  VectorTypeImpl<T, N, Storage> sum;
  MSCCLPP_UNROLL
  for (int i = 0; i < N; ++i) sum.data[i] = detail::addElements<UseClip>(a.data[i], b.data[i]);
  return sum;
}

/// The smaller one; of vectors, and of pairs of 16-bit types, element by element.
template <typename T>
MSCCLPP_HOST_DEVICE_INLINE T min(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, __half2> || std::is_same_v<T, __bfloat162>) {
    return T(min(a.x, b.x), min(a.y, b.y));
  } else {
    return widen<T>(b) < widen<T>(a) ? b : a;
  }
}
template <typename T, int N, typename Storage>
MSCCLPP_HOST_DEVICE_INLINE VectorTypeImpl<T, N, Storage> min(const VectorTypeImpl<T, N, Storage>& a,
                                                             const VectorTypeImpl<T, N, Storage>& b) {
  VectorTypeImpl<T, N, Storage> least;
  MSCCLPP_UNROLL
  for (int i = 0; i < N; ++i) least.data[i] = min(a.data[i], b.data[i]);
  return least;
}

/// Converts a vector, or an element, to another type: rounded to nearest even, fp8 saturated (for the rounding of
/// __fp8_e4m3b15 see there).
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
