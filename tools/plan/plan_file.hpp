// Plans in files; the format follows from the name.
#pragma once

#include <string>

#include "mscclpp/kernels/plan/simulate.hpp"
#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan_tool {

/// The file's text. Throws Error(InvalidUsage).
std::string readFile(const std::string& path);
/// Standard output for "-".
void writeFile(const std::string& path, const std::string& text);

/// .json: MSCCL++'s schema; .xml: MSCCL's; .svg: a picture of a call with `bytes` bytes; any other name: the text form.
void writePlan(const std::string& path, const plan::NamedPlan& plan, std::uint64_t bytes,
               const plan::Topology& topology);

}  // namespace mscclpp::plan_tool
