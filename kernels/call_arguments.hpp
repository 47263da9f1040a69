// The arguments of a call: their checks, and the sizes that follow from them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "mscclpp/kernels/collective_call.hpp"

namespace mscclpp::kernels {

/// The collective with this nameOf(); nothing if there is none.
std::optional<CollectiveType> findCollective(std::string_view name);

/// The count of a call or, where it has one for each rank, the largest.
std::size_t longestCountOf(const CollectiveCall& call);

/// Bytes of longestCountOf() elements or, of a SendReceive, of the longer message: what algorithms are selected
/// by.
std::size_t bytesOf(const CollectiveCall& call);

/// Bytes of the output of a rank; 0 where it has none.
std::size_t outputBytesOf(const CollectiveCall& call, int rank, int ranks);

/// Throws Error(InvalidUsage) with what is wrong with a call. Returns false for a call without elements, which does
/// nothing. rank, ranks: of the caller, and of the team.
bool requireValid(const CollectiveCall& call, int rank, int ranks);

[[noreturn]] void throwInvalidCall(const CollectiveCall& call, const std::string& why);

}  // namespace mscclpp::kernels
