// What cuBLASLt wants of a multiplication of fp8, for those that choose sizes as well.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mscclpp::kernels {

/// Of which addresses are multiples, and width and depth. Rows can be any number.
inline constexpr std::uint32_t cublasFp8Alignment = 16;
inline constexpr std::size_t cublasFp8Multiple = 16;

}  // namespace mscclpp::kernels
