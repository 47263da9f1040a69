// A program that compiles kernels at run time. Without NVRTC it still starts, and gets an error for a wrong request.
#include <mscclpp/host/base/error.hpp>
#include <mscclpp/jit/program.hpp>
#include <string>

int main() {
  try {
    mscclpp::jit::compile({.source = "", .kernels = {}, .architecture = "sm_90a"});
  } catch (const mscclpp::Error& error) {
    return std::string(error.what()).find("CompileRequest::kernels") != std::string::npos ? 0 : 1;
  }
  return 1;
}
