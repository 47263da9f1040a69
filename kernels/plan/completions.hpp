// Which transfers of a plan end a reduction: an average divides their results.
#pragma once

#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// Sets Operation::completes of all transfers of a plan that was proven, by following the data through one call: their
/// results are the reduction of all ranks' data. None has it if the collective does not reduce, or is Custom, or if a
/// transfer handles both such data and partial sums: then the plan cannot average.
void setCompletions(Plan& plan);

/// Whether calls of the plan can be averages.
bool canAverage(const Plan& plan);

}  // namespace mscclpp::plan
