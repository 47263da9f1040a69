// Where the headers are searched: variables, beside NVRTC, and errors that say what to do.
#include "kernels/jit/include_folders.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "mscclpp/host/base/error.hpp"
#include "temporary_folder.hpp"

using namespace mscclpp;
using namespace mscclpp::jit::detail;
using mscclpp::test::TemporaryFolder;

namespace {

// Sets an environment variable for the lifetime of the object.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    const char* old = std::getenv(name);
    if (old != nullptr) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { old_.empty() ? ::unsetenv(name_) : ::setenv(name_, old_.c_str(), 1); }

 private:
  const char* name_;
  std::string old_;
};

// The four variables, unset.
struct NoVariables {
  Variable mscclpp{"MSCCLPP_INCLUDE_DIR", ""}, cccl{"MSCCLPP_CCCL_INCLUDE_DIR", ""},
      cuda{"MSCCLPP_CUDA_INCLUDE_DIR", ""};
};

}  // namespace

TEST_CASE("headers lie beside NVRTC: a toolkit, packages of CUDA 13, packages of CUDA 12") {
  const NoVariables none;
  struct Layout {
    const char* library;
    const char* cccl;
    const char* cuda;
  };
  for (const auto& layout :
       {Layout{"toolkit/lib/libnvrtc.so.13", "toolkit/include/cccl", "toolkit/include"},
        Layout{"nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cu13/include", "nvidia/cu13/include"},
        Layout{"nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "nvidia/cuda_cccl/include", "nvidia/cuda_runtime/include"}}) {
    CAPTURE(layout.library);
    const TemporaryFolder folder;
    folder.write(layout.library, "");
    folder.write(std::string(layout.cccl) + "/cuda/std/cstddef", "");
    folder.write(std::string(layout.cuda) + "/cuda_fp16.h", "");
    const auto found = findIncludeFolders(Env(), (folder.path() / layout.library).string());
    CHECK(found.mscclpp == "");
    CHECK(found.cccl == (folder.path() / layout.cccl).string());
    CHECK(found.cuda == (folder.path() / layout.cuda).string());
  }
}

TEST_CASE("CUDA_HOME is searched next") {
  const NoVariables none;
  const TemporaryFolder folder;
  folder.write("include/cccl/cuda/std/cstddef", "");
  folder.write("include/cuda_fp16.h", "");
  const Variable home("CUDA_HOME", folder.path().string());
  const auto found = findIncludeFolders(Env(), "/nonexistent/lib/libnvrtc.so");
  CHECK(found.cccl == (folder.path() / "include/cccl").string());
  CHECK(found.cuda == (folder.path() / "include").string());
}

TEST_CASE("variables go first, and must name a folder with the headers") {
  const NoVariables none;
  const TemporaryFolder folder;
  folder.write("cccl/cuda/std/cstddef", "");
  folder.write("cuda/cuda_fp16.h", "");
  folder.write("own/mscclpp/config.hpp", "");
  const auto at = [&](const char* name) { return (folder.path() / name).string(); };
  const Variable cccl("MSCCLPP_CCCL_INCLUDE_DIR", at("cccl")), cuda("MSCCLPP_CUDA_INCLUDE_DIR", at("cuda"));
  {
    const Variable own("MSCCLPP_INCLUDE_DIR", at("own"));
    const auto found = findIncludeFolders(Env(), "");
    CHECK(found.mscclpp == at("own"));
    CHECK(found.cccl == at("cccl"));
    CHECK(found.cuda == at("cuda"));
  }
  for (const char* name : {"MSCCLPP_INCLUDE_DIR", "MSCCLPP_CCCL_INCLUDE_DIR", "MSCCLPP_CUDA_INCLUDE_DIR"}) {
    const Variable wrong(name, folder.path().string());
    try {
      findIncludeFolders(Env(), "");
      FAIL_CHECK("found nothing, and did not say so");
    } catch (const Error& error) {
      CHECK(error.getErrorCode() == ErrorCode::InvalidUsage);
      CHECK(std::string(error.what()).find(name) != std::string::npos);
      CHECK(std::string(error.what()).find(folder.path().string()) != std::string::npos);
    }
  }
}
