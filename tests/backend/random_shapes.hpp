// How many random shapes a test has.
#pragma once

#include <cstdlib>

#include "backend.hpp"
#include "sanitizer.hpp"

namespace mscclpp::test {

/// The number in an environment variable or, if that is not set, a few on CPUs, whose lanes are threads, fewer under
/// ThreadSanitizer, and more on GPUs.
inline int numberOfShapes(const char* variable, int onGpu, int onCpu, int withRaces) {
  const char* value = std::getenv(variable);
  if (value != nullptr) return std::atoi(value);
  return Backend<>::onGpu ? onGpu : detectsRaces ? withRaces : onCpu;
}

}  // namespace mscclpp::test
