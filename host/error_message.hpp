// The message of an Error without what its class adds: to say more, and throw it again.
#pragma once

#include <string>

#include "mscclpp/host/error.hpp"

namespace mscclpp::detail {

inline std::string messageOf(const Error& error) {
  const std::string text = error.what();
  return text.substr(0, text.rfind(" (mscclpp failure"));
}

}  // namespace mscclpp::detail
