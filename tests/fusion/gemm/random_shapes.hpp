// How many random shapes a test of fused GEMMs has.
#pragma once

#include <cstdlib>

#include "tests/backend/backend.hpp"

namespace mscclpp::test {

/// The number of random shapes of a test: a dozen on CPUs, more on GPUs, or MSCCLPP_GEMM_SHAPES.
inline int randomShapes() {
  const char* value = std::getenv("MSCCLPP_GEMM_SHAPES");
  if (value != nullptr) return std::atoi(value);
  return Backend<32>::onGpu ? 100 : 12;
}

}  // namespace mscclpp::test
