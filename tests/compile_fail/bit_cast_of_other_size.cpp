// bitCast requires types of the same size.
// EXPECT: bitCast needs types of the same size
#include "mscclpp/arch/word.hpp"

#ifdef CORRECT
unsigned bits(float value) {
  return mscclpp::arch::bitCast<unsigned>(value);
}
#else
unsigned bits(double value) {
  return mscclpp::arch::bitCast<unsigned>(value);
}
#endif
