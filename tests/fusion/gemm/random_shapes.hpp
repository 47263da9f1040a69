// How many random shapes a test of fused GEMMs has.
#pragma once

#include <cstdlib>

#include "tests/backend/backend.hpp"

namespace mscclpp::test {

/// The number of random shapes of a test: a few on CPUs, whose lanes are threads, more on GPUs, or MSCCLPP_GEMM_SHAPES.
inline int randomShapes() {
  const char* value = std::getenv("MSCCLPP_GEMM_SHAPES");
  if (value != nullptr) return std::atoi(value);
#if defined(__SANITIZE_THREAD__)
  return 3;
#else
  return Backend<32>::onGpu ? 100 : 8;
#endif
}

}  // namespace mscclpp::test
