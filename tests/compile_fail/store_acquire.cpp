// A store cannot acquire.
// EXPECT: a store is Volatile, Relaxed or Release
#include "mscclpp/arch/memory.hpp"

using namespace mscclpp::arch;

void publish(unsigned* flag) {
#ifdef CORRECT
  store<Order::Release, Scope::System>(flag, 1u);
#else
  store<Order::Acquire, Scope::System>(flag, 1u);
#endif
}
