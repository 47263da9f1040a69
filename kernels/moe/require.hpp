// How a moe::Buffer refuses wrong uses.
#pragma once

#include <string>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::moe::detail {

/// How all errors of a moe::Buffer begin.
inline constexpr const char* errorPrefix = "moe::Buffer";

/// Throws Error(InvalidUsage) that says `otherwise` unless the condition holds.
inline void require(bool condition, const std::string& otherwise) {
  if (!condition) throw Error(std::string(errorPrefix) + ": " + otherwise, ErrorCode::InvalidUsage);
}

}  // namespace mscclpp::moe::detail
