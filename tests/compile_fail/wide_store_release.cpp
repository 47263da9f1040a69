// A 16-byte store cannot release: it is not a single access on both backends.
// EXPECT: release through a 4- or 8-byte flag
#include "mscclpp/arch/memory.hpp"

using namespace mscclpp::arch;

void publish(mscclpp::Word128* slot, mscclpp::Word128 value) {
#ifdef CORRECT
  store<Order::Relaxed, Scope::System>(slot, value);
#else
  store<Order::Release, Scope::System>(slot, value);
#endif
}
