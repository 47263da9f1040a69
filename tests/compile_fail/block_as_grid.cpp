// A block of cooperative_groups, whose members have other names, is not a grid.
// EXPECT: grid must be a Grid: gpu::Grid\(\) in a kernel
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/collective/all_reduce.hpp"

using namespace mscclpp;

#ifdef CORRECT
using Where = cpu::SerialGrid;
#else
struct Where {
  unsigned thread_rank() const;
  unsigned num_threads() const;
  void sync() const;
};
#endif

void call(const AllReduce<float, Sum, AllReduceConfig{}>::Args& args, const float* input, float* output) {
  AllReduce<float, Sum, AllReduceConfig{}>::run(Where(), args, ArraySource<float>(input), ArraySink<float>(output));
}
