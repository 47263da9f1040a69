// The two-shot packet all-reduce on a GPU.

// Checked calls begin together, which would hide what these cases look for.
#define MSCCLPP_CHECKED 0

#include "mscclpp/collective/config.hpp"

namespace mscclpp::test {
inline constexpr Pattern allReducePattern = Pattern::TwoShot;
}

#include "all_reduce_packets_cases.hpp"
