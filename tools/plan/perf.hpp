// mscclpp-perf on a plan.
#pragma once

#include <string>
#include <vector>

#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan_tool {

/// Replaces this program by mscclpp-perf, which executes the plan of the file, checks the results and measures: on the
/// GPUs of this machine, or on CPU ranks. arguments: further ones of mscclpp-perf, which is looked for beside this
/// program, where Meson builds it, and in PATH. Does not return; throws Error(InvalidUsage) for a collective that
/// mscclpp-perf does not have, and SysError if it cannot be started.
void execPerf(const std::string& file, const plan::NamedPlan& plan, const std::vector<std::string>& arguments);

}  // namespace mscclpp::plan_tool
