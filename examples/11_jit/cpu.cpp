// 11 without a GPU: compiles the kernel for one, takes it from the cache the second time, and shows what the user of a
// wrong expression reads.
#include <chrono>
#include <cstdio>

#include "activation.hpp"
#include "example.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/jit/toolchain.hpp"

using namespace mscclpp;

namespace {

jit::Program compileAndPrint() {
  const auto start = std::chrono::steady_clock::now();
  const auto program = jit::compileCollective(example::request(example::leakyRelu, "sm_90a"));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("  %zu bytes of machine code, %s in %.3f s\n", program.image().size(),
              program.fromCache() ? "from the cache" : "compiled", seconds.count());
  return program;
}

}  // namespace

int main() {
  try {
    const auto& tools = jit::toolchain();
    std::printf("NVRTC %d.%d (%s)\n", tools.nvrtcMajor, tools.nvrtcMinor, tools.nvrtc.c_str());
    std::printf("an all-reduce of leaky ReLUs for sm_90a:\n");
    const auto program = compileAndPrint();
    example::require(program.image().size() > 1000, "there is no machine code");
    example::require(compileAndPrint().image() == program.image(), "the second compilation differs");

    try {
      jit::compileCollective(example::request("x >", "sm_90a"));
      example::require(false, "a wrong expression compiled");
    } catch (const Error& error) {
      std::printf("a wrong expression: %s\n", error.what());
      example::require(std::string(error.what()).find("activation.cu(12)") != std::string::npos, "no line is named");
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
