// Text from another process, made safe to print on a terminal.
#pragma once

#include <cstddef>
#include <string>

namespace mscclpp::detail {

/// Replaces every control character except line feed and tab with '?', including the two-byte ones of UTF-8 (U+0080 to
/// U+009F): an escape sequence could otherwise control the reader's terminal.
inline std::string printableText(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) text[i] = '?';
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) text.replace(i, 2, "?");
  }
  return text;
}

}  // namespace mscclpp::detail
