// Host twin of reductions on memory: replaces an element by a function of it, atomically.
#pragma once

#if !defined(__CUDACC_RTC__)

#include "mscclpp/arch/word.hpp"

namespace mscclpp::arch::twin {

template <int Bytes>
struct UpdatedWord {
  using Type = typename WordOfSize<Bytes>::Type;
};
template <>
struct UpdatedWord<1> {
  using Type = std::uint8_t;
};
template <>
struct UpdatedWord<2> {
  using Type = std::uint16_t;
};

/// *address = change(*address). Relaxed. T: 1 to 8 bytes.
template <class T, class Change>
void update(T* address, const Change& change) {
  using Word = typename UpdatedWord<sizeof(T)>::Type;
  auto* word = reinterpret_cast<Word*>(address);
  Word before = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &before, bitCast<Word>(change(bitCast<T>(before))), true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
}

}  // namespace mscclpp::arch::twin

#endif
