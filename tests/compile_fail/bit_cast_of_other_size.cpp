// Bits are only reinterpreted as a type of the same size.
// EXPECT: give it types of one size
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
