// Loading NVRTC: where it is searched, and what is said if it is not there.
#include "kernels/jit/nvrtc.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "mscclpp/host/base/error.hpp"
#include "temporary_folder.hpp"

using namespace mscclpp;
using namespace mscclpp::jit::detail;

namespace {

std::string errorOf(const std::vector<std::string>& libraries) {
  try {
    const Nvrtc nvrtc(libraries);
    return "";
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::SystemError);
    return error.what();
  }
}

}  // namespace

TEST_CASE("a missing NVRTC is an error that says where it was searched and how to get it") {
  const std::string error = errorOf({"libnvrtc-of-nobody.so", "/nonexistent/libnvrtc.so.13"});
  for (const char* part : {"libnvrtc-of-nobody.so", "/nonexistent/libnvrtc.so.13", "MSCCLPP_NVRTC_LIB_PATH",
                           "nvidia-cuda-nvrtc", "CUDA toolkit"}) {
    CAPTURE(part);
    CHECK(error.find(part) != std::string::npos);
  }
}

TEST_CASE("another library is an error that names what it lacks") {
  const std::string error = errorOf({"libc.so.6"});
  CHECK(error.find("nvrtcCompileProgram") != std::string::npos);
  CHECK(error.find("MSCCLPP_NVRTC_LIB_PATH") != std::string::npos);
}

TEST_CASE("a variable names the library or its folder; without it the loader and the toolkits are asked") {
  const test::TemporaryFolder folder;
  const auto file = folder.write("libnvrtc.so.13", "").string();
  CHECK(nvrtcLibraries(file) == std::vector<std::string>{file});
  const auto inFolder = nvrtcLibraries(folder.path().string());
  CHECK(inFolder.front() == file);
  CHECK(std::all_of(inFolder.begin(), inFolder.end(),
                    [&](const std::string& name) { return name.starts_with(folder.path().string()); }));
  const auto searched = nvrtcLibraries("");
  CHECK(searched.front() == "libnvrtc.so.13");
  CHECK(std::count(searched.begin(), searched.end(), "/usr/local/cuda/lib64/libnvrtc.so.13") >= 1);
}
