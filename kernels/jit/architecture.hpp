// The GPU architectures that programs are compiled for, as text: "sm_90a", "compute_90".
#pragma once

#include <string>
#include <vector>

namespace mscclpp::jit::detail {

/// Throws Error(InvalidUsage) unless `architecture` is "sm_" or "compute_" with the number of one of `supported` (90
/// for sm_90, as NVRTC lists them) and possibly a letter a or f.
void checkArchitecture(const std::string& architecture, const std::vector<int>& supported);

bool isPtxArchitecture(const std::string& architecture);

/// For a GPU of this compute capability (90 for 9.0): machine code with all features of the GPU, or PTX for the newest
/// architecture before it if NVRTC does not know the GPU. Throws Error(InvalidUsage) if NVRTC knows only newer ones.
std::string architectureFor(int capability, const std::vector<int>& supported);

}  // namespace mscclpp::jit::detail
