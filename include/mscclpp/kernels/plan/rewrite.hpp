// Plans made from plans: the same algorithm with stronger order, or without switches.
#pragma once

#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// The plan with every relaxed signal released and every relaxed wait acquired.
NamedPlan withOrderedSignals(NamedPlan plan);

/// The plan with every operand on a switch channel replaced by the same chunks of all members of the channel, in the
/// channel's order: loads and stores of the peers' memory. It serves where multicast is not to be had. The order of a
/// sum is the same on all ranks. Throws Error(InvalidUsage) if a switch channel is read in packets.
NamedPlan withoutSwitches(const NamedPlan& plan);

}  // namespace mscclpp::plan
