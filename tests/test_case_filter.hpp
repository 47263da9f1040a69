// How a test starts another test case of its program by name.
#pragma once

#include <string>

namespace mscclpp::test {

/// The filter of doctest that only a test case of this name passes: a comma would begin another filter.
inline std::string asFilter(const std::string& testCase) {
  std::string filter;
  for (const char c : testCase) {
    if (c == ',' || c == '\\') filter += '\\';
    filter += c;
  }
  return filter;
}

}  // namespace mscclpp::test
