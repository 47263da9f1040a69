// Cases of the collectives that reduce: reduce-scatter and reduce.
#pragma once

#include "collective_cases.hpp"

namespace mscclpp::test {

template <CollectiveConfig config>
using ReduceScatterOf = ReduceScatter<bf16, Sum, config>;
template <CollectiveConfig config>
using ReduceOf = Reduce<float, Sum, config>;

TEST_CASE("reduce-scatter: every protocol, in place and out of place") {
  checkSessions<ReduceScatterOf>();
}
TEST_CASE("reduce: every protocol, to changing roots, in place and out of place") {
  checkSessions<ReduceOf>();
}

// See collective_moves_cases.hpp.
#if !defined(__SANITIZE_THREAD__)
TEST_CASE("reduce-scatter: these checks detect slots that are written before they were read") {
  checkDetectsTooFewSlots<ReduceScatterOf>();
}
#endif

}  // namespace mscclpp::test
