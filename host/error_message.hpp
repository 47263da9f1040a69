// What an error says without what its class adds, and its code: to say more, and throw it again.
#pragma once

#include <string>

#include "mscclpp/host/error.hpp"

namespace mscclpp::detail {

inline std::string messageOf(const BaseError& error) {
  const std::string text = error.what();
  return dynamic_cast<const Error*>(&error) != nullptr ? text.substr(0, text.rfind(" (mscclpp failure")) : text;
}

/// SystemError for what has no code of this library: an error of the system, of CUDA or of verbs.
inline ErrorCode codeOf(const BaseError& error) {
  const auto* own = dynamic_cast<const Error*>(&error);
  return own != nullptr ? own->getErrorCode() : ErrorCode::SystemError;
}

}  // namespace mscclpp::detail
