// 16 bytes cannot publish other data: no such instruction is a single access on both sides.
// EXPECT: publish them with a 4- or 8-byte flag
#include "mscclpp/arch/memory.hpp"

using namespace mscclpp::arch;

void publish(mscclpp::Word16* slot, mscclpp::Word16 value) {
#ifdef CORRECT
  store<Order::Relaxed, Scope::System>(slot, value);
#else
  store<Order::Release, Scope::System>(slot, value);
#endif
}
