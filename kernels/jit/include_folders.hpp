// Where the headers of device code are: the library's, libcu++'s and the CUDA toolkit's.
#pragma once

#include <string>
#include <vector>

#include "mscclpp/host/base/env.hpp"

namespace mscclpp::jit::detail {

/// Folders of CUDA toolkits: CUDA_HOME, CUDA_PATH, /usr/local/cuda, as far as they are set. They may not exist.
std::vector<std::string> toolkitFolders();

struct IncludeFolders {
  std::string mscclpp;  ///< empty: the headers that are part of the library
  std::string cccl;
  std::string cuda;
};

/// What the variables name goes first, then what lies beside the library `nvrtc` (the toolkit's folders, or those of
/// PyPI's packages), then toolkitFolders(). Throws Error(InvalidUsage) if a variable names a folder without the
/// headers, and Error(SystemError) if there are none anywhere.
IncludeFolders findIncludeFolders(const Env& environment, const std::string& nvrtc);

}  // namespace mscclpp::jit::detail
