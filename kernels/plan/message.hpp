// Messages of errors in plans and programs.
#pragma once

#include <sstream>
#include <string>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::plan {

/// The arguments, one after the other.
template <class... Parts>
std::string textOf(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// Throws Error(InvalidUsage) with the arguments as its message.
template <class... Parts>
[[noreturn]] void reject(const Parts&... parts) {
  throw Error(textOf(parts...), ErrorCode::InvalidUsage);
}

}  // namespace mscclpp::plan
