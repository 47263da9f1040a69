// A source is called through a const reference.
// EXPECT: source must be a const callable Pack<T>\(std::size_t first, int valid\)
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/collective/all_reduce.hpp"

using namespace mscclpp;

struct Ones {
#ifdef CORRECT
  Pack<float> operator()(std::size_t, int) const {
    return {1, 1, 1, 1};
  }
#else
  Pack<float> operator()(std::size_t, int) {
    return {1, 1, 1, 1};
  }
#endif
};

void call(const AllReduce<float, Sum, AllReduceConfig{}>::Args& args, float* output) {
  AllReduce<float, Sum, AllReduceConfig{}>::run(cpu::SerialGrid(), args, Ones(), ArraySink<float>(output));
}
