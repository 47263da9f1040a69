// CPU implementation of reductions on memory: atomically replaces an element by a function of it.
#pragma once

#if !defined(__CUDACC_RTC__)

#include "mscclpp/arch/word.hpp"

namespace mscclpp::arch::host {

template <int Bytes>
struct AtomicWord {
  using Type = typename WordOfSize<Bytes>::Type;
};
template <>
struct AtomicWord<1> {
  using Type = std::uint8_t;
};
template <>
struct AtomicWord<2> {
  using Type = std::uint16_t;
};

/// Atomically, *address = change(*address). Relaxed. T: 1, 2, 4 or 8 bytes.
template <class T, class Change>
void update(T* address, const Change& change) {
  using Word = typename AtomicWord<sizeof(T)>::Type;
  auto* word = reinterpret_cast<Word*>(address);
  Word before = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &before, bitCast<Word>(change(bitCast<T>(before))), true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
}

}  // namespace mscclpp::arch::host

#endif
