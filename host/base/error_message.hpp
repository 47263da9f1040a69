// The message of an error without the suffix of its class, and its code: to extend it and rethrow it.
#pragma once

#include <exception>
#include <string>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

inline std::string messageOf(const std::exception& error) {
  const std::string text = error.what();
  return dynamic_cast<const Error*>(&error) != nullptr ? text.substr(0, text.rfind(" (mscclpp failure")) : text;
}

/// SystemError for errors that have no code of this library: of the system, of CUDA or of verbs.
inline ErrorCode codeOf(const BaseError& error) {
  const auto* own = dynamic_cast<const Error*>(&error);
  return own != nullptr ? own->getErrorCode() : ErrorCode::SystemError;
}

}  // namespace mscclpp::detail
