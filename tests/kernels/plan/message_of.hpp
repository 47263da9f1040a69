// What the compiler of plans says of a wrong program.
#pragma once

#include <string>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::test {

/// The message of the Error that f() throws; empty if it throws none.
template <class F>
std::string messageOf(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
inline bool says(const std::string& message, const char* part) {
  return message.find(part) != std::string::npos;
}

}  // namespace mscclpp::test
