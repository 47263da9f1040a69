// 11 without a GPU: compiles the kernel for one, takes it from the cache the second time, and shows what the user of a
// wrong expression reads.
#include <cstdio>

#include "activation.hpp"
#include "example.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/jit/toolchain.hpp"

int main() {
  using namespace mscclpp;
  try {
    const auto& tools = jit::toolchain();
    std::printf("NVRTC %d.%d (%s)\n", tools.major, tools.minor, tools.nvrtc.c_str());
    const auto program = jit::compileCollective(example::request(example::leakyRelu, "sm_90a"));
    example::require(program.image().size() > 1000, "there is no machine code");
    const auto again = jit::compileCollective(example::request(example::leakyRelu, "sm_90a"));
    example::require(again.image() == program.image(), "the second compilation differs");
    std::printf("an all-reduce of leaky ReLUs for sm_90a: %zu bytes of machine code%s\n", again.image().size(),
                again.fromCache() ? ", from the cache" : "");

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
