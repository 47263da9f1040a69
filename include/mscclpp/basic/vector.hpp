// N elements that move as one word, and the 16-byte Pack that is the unit of every collective.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// N elements of T, aligned to their common size up to 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vector {
  static_assert(N > 0 && (N & (N - 1)) == 0, "a vector has a power of two of elements");
  using Element = T;
  static constexpr int size = N;

  T data[N];

  MSCCLPP_INLINE T& operator[](int i) { return data[i]; }
  MSCCLPP_INLINE const T& operator[](int i) const { return data[i]; }
};

/// Elements of T in 16 bytes.
template <class T>
inline constexpr int packSize = 16 / static_cast<int>(sizeof(T));

/// 16 bytes of elements: what a thread loads, sends, reduces and stores at a time.
template <class T>
using Pack = Vector<T, packSize<T>>;

template <class T>
MSCCLPP_INLINE Word16 toWord(const Pack<T>& pack) {
  return arch::bitCast<Word16>(pack);
}
template <class T>
MSCCLPP_INLINE Pack<T> fromWord(const Word16& word) {
  return arch::bitCast<Pack<T>>(word);
}

}  // namespace mscclpp
