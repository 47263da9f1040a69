// Plans in the JSON schema of MSCCL++'s executor.
#pragma once

#include <string>
#include <string_view>

#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// Reads a plan for all ranks. Operations that are several of ours (pws: a transfer and a signal) are split. The number
/// of channels and buffers of an operation is not limited. Keys of ours beside the reference's, both optional: `root`,
/// and `expectations` ([{rank, chunk, contributions: [[rank, chunk], ...]}, ...]) of custom collectives.
/// Throws Error(InvalidUsage) for text that is not such a plan, with rank, block, operation and key. It does not judge
/// the algorithm: plan/check.hpp does.
NamedPlan fromJson(std::string_view text);

/// Writes a plan. Operations get the name of the reference that their shape has; one with more than eight operands or
/// channels becomes several where that means the same. The reference's reductions start from a local plain operand, add
/// others of one kind and store the sum locally: operands of other kinds are copied to scratch that is added for them,
/// and so is a sum that is only sent. The order of a sum stays the same.
/// `glre` (a switch's reduction to local memory) is written though MSCCL++'s executor refuses it.
/// Lines of programs (NamedPlan::origins) are not written.
/// Throws Error(InvalidUsage) with rank, block and operation if an operation has no name in the schema.
std::string toJson(const NamedPlan& plan);

}  // namespace mscclpp::plan
