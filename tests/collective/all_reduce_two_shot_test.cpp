// The two-shot packet all-reduce on emulated threads.
#include "mscclpp/collective/config.hpp"

namespace mscclpp::test {
inline constexpr Pattern allReducePattern = Pattern::TwoShot;
}

#include "all_reduce_packets_cases.hpp"
