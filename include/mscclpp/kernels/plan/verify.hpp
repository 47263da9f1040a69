// The check of plans at run time, with errors instead of faults.
#pragma once

#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// Sets Operation::position of all transfers that the data reaches (plan/check.hpp: setPositions). False: not of all.
bool place(Plan& plan);
/// The plan with Operation::position of all transfers that the data reaches (plan/check.hpp: setPositions).
NamedPlan placed(NamedPlan plan);

/// Whether plan/check.hpp finds no fault.
bool isRight(const Plan& plan);

/// The same plan, proven to be right by plan/check.hpp, with its positions. Throws Error(InvalidUsage) that says what
/// is wrong and where: rank, block, operation, and the line of the program if the plan knows it.
NamedPlan verified(NamedPlan plan);

}  // namespace mscclpp::plan
