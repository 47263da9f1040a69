// Plans without switch channels, where multicast is not to be had.
#pragma once

#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// The plan with every operand on a switch channel replaced by the same chunks of all members of the channel, in the
/// channel's order: loads and stores of the peers' memory. The order of a sum is the same on all ranks. Throws
/// Error(InvalidUsage) if packets are read through a switch channel, or if the form of the plan is wrong
/// (plan/structure.hpp). A plan without switch channels stays as it is.
NamedPlan withoutSwitches(NamedPlan plan);

}  // namespace mscclpp::plan
