// Reductions of a group that are performed as one call of their collective.
#pragma once

#include <cstddef>
#include <span>

#include "mscclpp/kernels/collective_call.hpp"

namespace mscclpp::kernels {

/// The most calls of one kernel, whose arguments have their arrays.
inline constexpr std::size_t maxJoinedReductions = 32;
/// The longest call that is joined with others: a longer one is limited by the links, and its own kernel is faster.
inline constexpr std::size_t longestJoinedReduction = 256 << 10;
/// The most bytes of such a kernel.
inline constexpr std::size_t mostJoinedBytes = 1 << 20;
/// On CPUs, which copy arrays in one piece but not those of joined calls: few, so that little is lost, and programs
/// that are debugged there do what they do on GPUs.
inline constexpr std::size_t mostJoinedBytesOnCpu = 16 << 10;

/// How many of the first calls one call of up to `mostBytes` bytes can perform: all-reduces, or reduce-scatters, of the
/// same type and operator, short, without a named algorithm. It follows from what the ranks pass alike, so that it is
/// the same on all of them: addresses and factors are a rank's own. The calls are valid.
std::size_t countOfJoinedReductions(std::span<const CollectiveCall> calls, std::size_t mostBytes);

/// The call that performs such calls, without arrays and factor: those of the calls apply. Its elements include those
/// between their messages (collective/joined_calls.hpp).
CollectiveCall joinedCallOf(std::span<const CollectiveCall> calls);

}  // namespace mscclpp::kernels
