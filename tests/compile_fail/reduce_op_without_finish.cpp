// A reduction operator needs finish().
// EXPECT: Op must have combine\(\) and finish\(\)
#include "mscclpp/collective/all_reduce.hpp"

struct Concatenate {
  static float combine(float a, float b) { return 10 * a + b; }
#ifdef CORRECT
  static float finish(float total, int) {
    return total;
  }
#endif
};

template struct mscclpp::AllReduce<float, Concatenate, mscclpp::AllReduceConfig{}>;
