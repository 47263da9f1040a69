// Packets need scratch for the whole message.
// EXPECT: go with Schedule::Whole
#include "mscclpp/collective/all_reduce.hpp"

using namespace mscclpp;

#ifdef CORRECT
constexpr Protocol protocol = Protocol::Simple;
#else
constexpr Protocol protocol = Protocol::LL16;
#endif

template struct mscclpp::AllReduce<
    float, Sum, AllReduceConfig{.protocol = protocol, .pattern = Pattern::TwoShot, .schedule = Schedule::Pipelined}>;
