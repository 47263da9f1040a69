// A switch has no minimum of floats.
// EXPECT: no such load-reduce
#include "mscclpp/channel/switch.hpp"

using namespace mscclpp;

Vector<float, 4> least(const SwitchChannelHandle& channel) {
#ifdef CORRECT
  return channel.reduce<Vector<float, 4>>(0);
#else
  return channel.reduce<Vector<float, 4>, HardwareReduceOp::Min>(0);
#endif
}
