// Packet protocols cannot be pipelined: they need scratch for the whole message.
// EXPECT: LL8, LL16, LL128 and Sentinel require Schedule::Unpipelined
#include "mscclpp/collective/all_reduce.hpp"

using namespace mscclpp;

#ifdef CORRECT
constexpr Protocol protocol = Protocol::Simple;
#else
constexpr Protocol protocol = Protocol::LL16;
#endif

template struct mscclpp::AllReduce<
    float, Sum, AllReduceConfig{.protocol = protocol, .pattern = Pattern::TwoShot, .schedule = Schedule::Pipelined}>;
