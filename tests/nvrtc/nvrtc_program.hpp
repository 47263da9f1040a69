// Compiles device code at run time, like a program that instantiates its own collective.
#pragma once

#include <stdexcept>
#include <string>

#include "mscclpp/jit/program.hpp"

namespace mscclpp::test {

/// Compiles source for the tests' GPU architecture, with the device headers that are part of the library, and returns
/// its PTX. Throws std::runtime_error with the compiler's log if it does not compile or if there are warnings.
inline std::string compileToPtx(const std::string& source) {
  // Each request names a kernel; the sources' own ones are no templates and compile anyway.
  const auto program = jit::compile({.source = source + "\n__global__ void lastKernel() {}\n",
                                     .name = "source.cu",
                                     .kernels = {"lastKernel"},
                                     .architecture = MSCCLPP_TEST_PTX_ARCHITECTURE,
                                     .cached = false});
  if (!program.log().empty()) throw std::runtime_error("compiles with warnings\n" + program.log());
  return program.image();
}

}  // namespace mscclpp::test
