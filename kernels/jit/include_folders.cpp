#include "kernels/jit/include_folders.hpp"

#include <cstdlib>
#include <filesystem>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::jit::detail {

namespace {

// A set of headers: one file by which its folder is recognised, and how to get it.
struct HeaderSet {
  const char* variable;
  const char* file;
  const char* what;
  const char* advice;
};

constexpr HeaderSet mscclppHeaders{"MSCCLPP_INCLUDE_DIR", "mscclpp/config.hpp", "the headers of mscclpp", ""};
constexpr HeaderSet ccclHeaders{"MSCCLPP_CCCL_INCLUDE_DIR", "cuda/std/cstddef", "the headers of libcu++ (CCCL)",
                                "install the CUDA toolkit, PyPI's nvidia-cuda-cccl, or CCCL from github.com/NVIDIA"};
constexpr HeaderSet cudaHeaders{"MSCCLPP_CUDA_INCLUDE_DIR", "cuda_fp16.h", "the headers of the CUDA toolkit",
                                "install the CUDA toolkit, or PyPI's nvidia-cuda-runtime"};

bool hasFile(const std::string& folder, const char* file) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(folder + "/" + file, ignored);
}

std::string checked(const std::string& folder, const HeaderSet& set) {
  if (hasFile(folder, set.file)) return folder;
  throw Error(std::string(set.variable) + "=" + folder + " has no " + set.file + "; name a folder with " + set.what,
              ErrorCode::InvalidUsage);
}

std::string find(const std::string& chosen, const HeaderSet& set, const std::vector<std::string>& folders) {
  if (!chosen.empty()) return checked(chosen, set);
  std::string tried;
  for (const auto& folder : folders) {
    if (hasFile(folder, set.file)) return folder;
    tried += "\n  " + folder;
  }
  throw Error("compiling kernels at run time needs " + std::string(set.what) + ", and no folder has " + set.file +
                  "; " + set.advice + ", and name the folder in " + set.variable + ". Tried:" + tried,
              ErrorCode::SystemError);
}

}  // namespace

std::vector<std::string> toolkitFolders() {
  std::vector<std::string> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != '\0') folders.emplace_back(value);
  }
  folders.emplace_back("/usr/local/cuda");
  return folders;
}

IncludeFolders findIncludeFolders(const Env& environment, const std::string& nvrtc) {
  // A toolkit has <toolkit>/lib and <toolkit>/include; so have PyPI's packages of CUDA 13. Those of CUDA 12 have one
  // folder each, nvidia/cuda_nvrtc/lib, nvidia/cuda_runtime/include, nvidia/cuda_cccl/include.
  const auto package = std::filesystem::path(nvrtc).parent_path().parent_path();
  std::vector<std::string> folders;
  folders.push_back((package / "include").string());
  for (const char* other : {"cuda_cccl", "cuda_runtime"}) {
    folders.push_back((package.parent_path() / other / "include").string());
  }
  for (const auto& toolkit : toolkitFolders()) folders.push_back(toolkit + "/include");
  std::vector<std::string> ccclFolders;
  for (const auto& folder : folders) {
    ccclFolders.push_back(folder + "/cccl");
    ccclFolders.push_back(folder);
  }
  return {
      .mscclpp = environment.includeDir.empty() ? std::string() : checked(environment.includeDir, mscclppHeaders),
      .cccl = find(environment.ccclIncludeDir, ccclHeaders, ccclFolders),
      .cuda = find(environment.cudaIncludeDir, cudaHeaders, folders),
  };
}

}  // namespace mscclpp::jit::detail
