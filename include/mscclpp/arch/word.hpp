// Words of 4, 8 and 16 bytes: the units of memory access, whatever the type they represent.
#pragma once

#if defined(__CUDACC_RTC__)
#include <cuda/std/cstddef>
#include <cuda/std/cstdint>
namespace std {  // NVRTC has no <cstdint>; these are the names that host compilers provide
using cuda::std::byte;
using cuda::std::int16_t;
using cuda::std::int32_t;
using cuda::std::int64_t;
using cuda::std::int8_t;
using cuda::std::size_t;
using cuda::std::uint16_t;
using cuda::std::uint32_t;
using cuda::std::uint64_t;
using cuda::std::uint8_t;
using cuda::std::uintptr_t;
}  // namespace std
#else
#include <cstddef>
#include <cstdint>
#endif

#include "mscclpp/config.hpp"

namespace mscclpp {

/// 16 bytes: one memory access on a GPU, two accesses of 8 bytes on a CPU.
struct alignas(16) Word128 {
  std::uint64_t lo;
  std::uint64_t hi;
  friend MSCCLPP_INLINE bool operator==(const Word128& a, const Word128& b) { return a.lo == b.lo && a.hi == b.hi; }
};

namespace arch {

template <int Bytes>
struct WordOfSize;
template <>
struct WordOfSize<4> {
  using Type = std::uint32_t;
};
template <>
struct WordOfSize<8> {
  using Type = std::uint64_t;
};
template <>
struct WordOfSize<16> {
  using Type = Word128;
};

/// The word of T's size. T is trivially copyable and has 4, 8 or 16 bytes.
template <class T>
using WordFor = typename WordOfSize<sizeof(T)>::Type;

/// The bytes of `from` as a To.
template <class To, class From>
MSCCLPP_INLINE constexpr To bitCast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bitCast needs types of the same size");
  return __builtin_bit_cast(To, from);
}

}  // namespace arch
}  // namespace mscclpp
