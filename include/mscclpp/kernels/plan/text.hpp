// Plans as text, one line an operation.
#pragma once

#include <string>
#include <string_view>

#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// Every plan as text that people read and fromText() reads again:
///
///     plan "pair" allreduce ranks 2 chunks 1 in-place threads 512
///     rank 0 scratch 1
///       channel 0 memory 1
///       block 0
///         transfer 1 at 0: input[0] -> scratch[0]@1    # pair.py:8
///         sync
///         signal 0
///
/// An operand is a buffer, its first chunk, and where it is: @1 in the memory of rank 1, @1:port3 there through port
/// channel 3, @switch2 at all ranks of switch channel 2; .packets says that it holds packets. Sources are joined by +,
/// destinations by commas.
std::string toText(const NamedPlan& plan);

/// Reads what toText() writes; what is left out has its default. Throws Error(InvalidUsage) with the line's number.
NamedPlan fromText(std::string_view text);

}  // namespace mscclpp::plan
