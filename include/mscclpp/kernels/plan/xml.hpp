// Plans in the XML of MSCCL's runtime.
#pragma once

#include <string>
#include <string_view>

#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// Reads an algorithm in MSCCL's XML, and lowers its two-sided steps to one-sided operations: a message goes through
/// scratch of the receiver, or directly to its destination where the order of steps shows that it is free; dependences
/// between blocks become device semaphores. The attribute "root" of Broadcast, Reduce, Gather and Scatter is ours;
/// without it the root is rank 0. Throws Error(InvalidUsage) with gpu, block, step and attribute for text that is not
/// such an algorithm.
NamedPlan fromXml(std::string_view text);

/// Writes a plan for MSCCL's runtime: its transfers, in an order that its signals allow, are traced as a chunk program,
/// from which instructions are made. The plan has to be right (verified()). Throws Error(InvalidUsage) with rank, block
/// and operation for what MSCCL does not have: switch channels and groups of thread blocks.
std::string toXml(const NamedPlan& plan);

struct InstructionProgram;
/// Instructions as XML; MSCCLProgram::toXml() is the public form.
std::string writeXml(const InstructionProgram& program);

}  // namespace mscclpp::plan
