// A switch reduces fp8 on loads, not on stores.
// EXPECT: no such store-reduce
#include "mscclpp/channel/switch.hpp"

using namespace mscclpp;

#ifdef CORRECT
using Element = bf16;
#else
using Element = f8e4m3;
#endif

void add(const SwitchChannelHandle& channel, const Vector<Element, 8>& value) {
  channel.reduceInto(0, value);
}
