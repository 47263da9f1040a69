// A sink takes the number of valid elements of a pack.
// EXPECT: sink must be a const callable void\(std::size_t first, const Pack<T>& result, int valid\)
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/collective/all_reduce.hpp"

using namespace mscclpp;

struct Discard {
#ifdef CORRECT
  void operator()(std::size_t, const Pack<float>&, int) const {}
#else
  void operator()(std::size_t, const Pack<float>&) const {}
#endif
};

void call(const AllReduce<float, Sum, AllReduceConfig{}>::Args& args, const float* input) {
  AllReduce<float, Sum, AllReduceConfig{}>::run(cpu::SerialGrid(), args, ArraySource<float>(input), Discard());
}
