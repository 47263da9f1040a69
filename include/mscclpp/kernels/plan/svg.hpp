// A picture of a plan: its blocks over time, and who waits for whom.
#pragma once

#include <string>

#include "mscclpp/kernels/plan/simulate.hpp"
#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// SVG of a simulated call: a row for each block of each rank, a box for each operation from its begin to its end
/// (hover: what it does), an arrow from each signal, packet or release to what waited for it.
std::string toSvg(const NamedPlan& plan, const Simulated& simulated);

}  // namespace mscclpp::plan
