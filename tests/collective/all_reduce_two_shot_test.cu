// The two-shot packet all-reduce on a GPU.
#include "mscclpp/collective/config.hpp"

namespace mscclpp::test {
inline constexpr Pattern allReducePattern = Pattern::TwoShot;
}

#include "all_reduce_packets_cases.hpp"
