// Who this process is, in words that other processes can compare.
#pragma once

#include <array>
#include <cstdint>

namespace mscclpp::detail {

/// 128 unpredictable bits.
using Id128 = std::array<std::uint8_t, 16>;
Id128 randomId();

/// Drawn once a process, and again after fork: equal only within one address space. A pid would repeat in another
/// pid namespace.
Id128 processId();

/// Equal for processes of one host: of the host's boot id and name, or of MSCCLPP_HOSTID where that is set.
std::uint64_t hostHash();

}  // namespace mscclpp::detail
