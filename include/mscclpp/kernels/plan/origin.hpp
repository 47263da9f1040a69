// Where in a program an operation of a plan was written, for messages.
#pragma once

#include <string>
#include <utility>

namespace mscclpp::plan {

/// "file:line". Functions that record operations have it as their last argument; in C++ its default is the caller's
/// line. Bindings of other languages pass that of their program.
struct Origin {
  std::string text;

  static Origin current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    const std::string path = file;
    return {path.substr(path.rfind('/') + 1) + ":" + std::to_string(line)};
  }
};

}  // namespace mscclpp::plan
