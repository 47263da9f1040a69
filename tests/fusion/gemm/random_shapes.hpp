// How many random shapes a test of fused GEMMs has.
#pragma once

#include "tests/backend/random_shapes.hpp"

namespace mscclpp::test {

inline int randomShapes() {
  return numberOfShapes("MSCCLPP_GEMM_SHAPES", 100, 8, 3);
}

}  // namespace mscclpp::test
