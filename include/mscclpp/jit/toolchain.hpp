// What kernels are compiled with at run time: NVRTC, and the folders of headers.
#pragma once

#include <string>
#include <vector>

namespace mscclpp::jit {

/// Where things were found. docs/jit.md says in which order places are searched.
struct Toolchain {
  std::string nvrtc;  ///< path of the loaded library
  int nvrtcMajor;     ///< NVRTC's version
  int nvrtcMinor;
  std::vector<int> architectures;  ///< that NVRTC compiles for: 90 for sm_90
  std::string mscclppInclude;      ///< the folder of MSCCLPP_INCLUDE_DIR; empty: headers that are part of the library
  std::string ccclInclude;         ///< the folder that has cuda/std/
  std::string cudaInclude;         ///< the folder that has cuda_fp16.h
};

/// Loads NVRTC at the first call and finds the headers. Throws Error(InvalidUsage) if a variable of the environment
/// names a place that has not what it should, and Error(SystemError) if something is found nowhere; the message says
/// where it was searched and what to do.
const Toolchain& toolchain();

}  // namespace mscclpp::jit
