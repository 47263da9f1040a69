// A switch sums fp8 where it loads, not where it stores.
// EXPECT: no store-reduce of this kind
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
