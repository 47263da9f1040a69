// Vectors of N elements that are accessed as one word, and the 16-byte Pack, the unit of all collectives.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// N elements of T, aligned to their total size, at most 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vector {
  static_assert(N > 0 && (N & (N - 1)) == 0, "the number of elements of a vector must be a power of two");
  using Element = T;
  static constexpr int size = N;

  T data[N];

  MSCCLPP_INLINE T& operator[](int i) { return data[i]; }
  MSCCLPP_INLINE const T& operator[](int i) const { return data[i]; }
};

/// The number of elements T in 16 bytes.
template <class T>
inline constexpr int packSize = 16 / static_cast<int>(sizeof(T));

/// 16 bytes of elements: the unit in which a thread loads, sends, reduces and stores.
template <class T>
using Pack = Vector<T, packSize<T>>;

template <class T>
MSCCLPP_INLINE Word128 toWord(const Pack<T>& pack) {
  return arch::bitCast<Word128>(pack);
}
template <class T>
MSCCLPP_INLINE Pack<T> fromWord(const Word128& word) {
  return arch::bitCast<Pack<T>>(word);
}

}  // namespace mscclpp
