// Compiles a kernel at run time, like a program that instantiates its own collective.
#pragma once

#include <nvrtc.h>

#include <stdexcept>
#include <string>

namespace mscclpp::test {

inline void checkNvrtc(nvrtcResult result, const std::string& log = "") {
  if (result != NVRTC_SUCCESS) throw std::runtime_error(std::string(nvrtcGetErrorString(result)) + "\n" + log);
}

/// Compiles source for the tests' GPU architecture with the library's include directories, and returns its PTX.
/// Throws std::runtime_error with the compiler's log if it does not compile or if there are warnings.
inline std::string compileToPtx(const std::string& source) {
  nvrtcProgram program = nullptr;
  checkNvrtc(nvrtcCreateProgram(&program, source.c_str(), "source.cu", 0, nullptr, nullptr));
  const struct Owner {
    nvrtcProgram program;
    ~Owner() { nvrtcDestroyProgram(&program); }
  } owner{program};

  // Generic lambdas are host functions to NVRTC unless it is told otherwise. CCCL comes before the toolkit, since it
  // has the standard library of device code.
  const char* options[] = {MSCCLPP_TEST_NVRTC_ARCH,
                           "--std=c++20",
                           "--device-as-default-execution-space",
                           "-I" MSCCLPP_TEST_INCLUDE,
                           "-I" MSCCLPP_TEST_CCCL_INCLUDE,
                           "-I" MSCCLPP_TEST_TOOLKIT_INCLUDE};
  const nvrtcResult compiled = nvrtcCompileProgram(program, std::size(options), options);
  std::size_t logSize = 0;
  checkNvrtc(nvrtcGetProgramLogSize(program, &logSize));
  std::string log(logSize, '\0');
  checkNvrtc(nvrtcGetProgramLog(program, log.data()));
  checkNvrtc(compiled, log);
  if (log.find("warning") != std::string::npos) throw std::runtime_error("compiles with warnings\n" + log);

  std::size_t size = 0;
  checkNvrtc(nvrtcGetPTXSize(program, &size));
  std::string ptx(size, '\0');
  checkNvrtc(nvrtcGetPTX(program, ptx.data()));
  return ptx;
}

}  // namespace mscclpp::test
