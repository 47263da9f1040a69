// A pointer is not a source.
// EXPECT: source must be a const callable Pack<T>\(std::size_t first, int valid\)
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/collective/all_reduce.hpp"

using namespace mscclpp;

void call(const AllReduce<float, Sum, AllReduceConfig{}>::Args& args, const float* input, float* output) {
#ifdef CORRECT
  const ArraySource<float> source(input);
#else
  const float* source = input;
#endif
  AllReduce<float, Sum, AllReduceConfig{}>::run(cpu::SerialGrid(), args, source, ArraySink<float>(output));
}
