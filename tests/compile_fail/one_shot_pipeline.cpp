// A tile pipeline has no one-shot form.
// EXPECT: Protocol::Simple requires Pattern::TwoShot
#include "mscclpp/collective/all_reduce.hpp"

using namespace mscclpp;

#ifdef CORRECT
constexpr Pattern pattern = Pattern::TwoShot;
#else
constexpr Pattern pattern = Pattern::OneShot;
#endif

template struct mscclpp::AllReduce<float, Sum, AllReduceConfig{.protocol = Protocol::Simple, .pattern = pattern}>;
