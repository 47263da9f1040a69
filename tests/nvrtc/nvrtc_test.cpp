// Device headers, and a whole collective, compile at run time: no host header sneaks into them. Needs no GPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "nvrtc_program.hpp"

using mscclpp::test::compileToPtx;

namespace {

std::string errorOf(const std::string& source) {
  try {
    compileToPtx(source);
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

// Every header that a kernel may include: all layers below the host part.
std::vector<std::string> deviceHeaders() {
  const std::filesystem::path root = MSCCLPP_TEST_INCLUDE;
  std::vector<std::string> headers = {"mscclpp/config.hpp"};
  for (const char* folder : {"arch", "basic", "packet", "sync", "channel", "collective"}) {
    if (!std::filesystem::exists(root / "mscclpp" / folder)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(root / "mscclpp" / folder)) {
      if (entry.path().extension() == ".hpp") headers.push_back(std::filesystem::relative(entry.path(), root).string());
    }
  }
  std::sort(headers.begin(), headers.end());
  return headers;
}

}  // namespace

TEST_CASE("a host header in device code is an error that names it") {
  CHECK(errorOf("#include <thread>\n").find("thread") != std::string::npos);
}

TEST_CASE("a warning is an error") {
  CHECK(errorOf("__global__ void k() { int unused; }\n") != "");
}

TEST_CASE("every device header compiles alone") {
  const auto headers = deviceHeaders();
  REQUIRE(headers.size() > 20);
  for (const auto& header : headers) {
    INFO(header);
    CHECK(errorOf("#include <" + header + ">\n") == "");
  }
}

TEST_CASE("a whole all-reduce compiles into a kernel") {
  const std::string ptx = compileToPtx(R"(
    #include <mscclpp/basic/access.hpp>
    #include <mscclpp/basic/group.hpp>
    #include <mscclpp/collective/all_reduce.hpp>

    using namespace mscclpp;
    using Collective = AllReduce<float, Sum, AllReduceConfig{.protocol = Protocol::LL16, .pattern = Pattern::TwoShot, .ranks = 4}>;

    extern "C" __global__ void allReduce(const __grid_constant__ Collective::Args args, const float* input, float* output) {
      Collective::run(gpu::Grid(), args, LoadFrom<float>(input), StoreTo<float>(output));
    }
  )");
  CHECK(ptx.find(".entry allReduce") != std::string::npos);
  CHECK(ptx.find("st.relaxed.sys.global") != std::string::npos);
}
