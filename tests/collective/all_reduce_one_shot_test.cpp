// The one-shot packet all-reduce on emulated threads.
#include "mscclpp/collective/config.hpp"

namespace mscclpp::test {
inline constexpr Pattern allReducePattern = Pattern::OneShot;
}

#include "all_reduce_packets_cases.hpp"
