// A switch does not reduce 8-bit integers.
// EXPECT: the switch reduces fp16
#include "mscclpp/channel/switch.hpp"

using namespace mscclpp;

#ifdef CORRECT
using Element = f16;
#else
using Element = std::int8_t;
#endif

Vector<Element, 16 / sizeof(Element)> sum(const MulticastPointer<Element>& pointer) {
  return pointer.loadReduce<16 / sizeof(Element)>();
}
