// A load cannot release.
// EXPECT: a load is Volatile, Relaxed or Acquire
#include "mscclpp/arch/memory.hpp"

using namespace mscclpp::arch;

unsigned observe(const unsigned* flag) {
#ifdef CORRECT
  return load<Order::Acquire, Scope::System>(flag);
#else
  return load<Order::Release, Scope::System>(flag);
#endif
}
