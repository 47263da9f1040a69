// Floats are not accumulated in fp16.
// EXPECT: no such load-reduce
#include "mscclpp/channel/switch.hpp"

using namespace mscclpp;

Vector<float, 4> sum(const SwitchChannelHandle& channel) {
#ifdef CORRECT
  return channel.reduce<Vector<float, 4>, HardwareReduceOp::Add, Accumulation::Native>(0);
#else
  return channel.reduce<Vector<float, 4>, HardwareReduceOp::Add, Accumulation::F16>(0);
#endif
}
