// Messages of errors in plans and programs.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>

#include "host/base/printable_text.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::plan {

/// The arguments, one after the other.
template <class... Parts>
std::string textOf(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// Text of a file or a program as it can be shown: on one line, not too long, and without control characters.
inline std::string shown(const std::string& text) {
  constexpr std::size_t most = 80;
  std::string start = mscclpp::detail::printableText(text.substr(0, most));
  std::replace(start.begin(), start.end(), '\n', ' ');
  return text.size() > most ? start + "..." : start;
}
/// The same in quotation marks.
inline std::string quoted(const std::string& text) {
  return '"' + shown(text) + '"';
}

/// Throws Error(InvalidUsage) with the arguments as its message.
template <class... Parts>
[[noreturn]] void reject(const Parts&... parts) {
  throw Error(textOf(parts...), ErrorCode::InvalidUsage);
}

}  // namespace mscclpp::plan
