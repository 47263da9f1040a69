// The state of a type that is no collective: its operator.
// EXPECT FIRST: .*C must be a Collective: a type with Args, Scratch, maxBlockThreads
#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"

using namespace mscclpp;

#ifdef CORRECT
using C = AllReduce<float, Sum, AllReduceConfig{}>;
#else
using C = Sum;
#endif

void make(Communicator& communicator) {
  const CollectiveState<C> state(communicator, DeviceType::GPU, 1000);
}
