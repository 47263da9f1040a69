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

/// Whether a byte of UTF-8 continues the character of the byte before it.
inline bool continuesCharacter(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

/// Text of a file or a program as it can be shown: on one line, not too long, without control characters, and of whole
/// characters.
inline std::string shown(const std::string& text) {
  constexpr std::size_t most = 80;
  std::size_t end = std::min(text.size(), most);
  // A character has up to four bytes; more that continue one are no UTF-8.
  for (int i = 0; i < 3 && end < text.size() && continuesCharacter(text[end]); ++i) --end;
  std::string start = mscclpp::detail::printableText(text.substr(0, end));
  std::replace(start.begin(), start.end(), '\n', ' ');
  return text.size() > end ? start + "..." : start;
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
