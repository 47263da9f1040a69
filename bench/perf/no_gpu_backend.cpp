// Replaces gpu_backend.cpp in a build without CUDA.
#include "backend.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::perf {

int gpuCount(std::string& reason) {
  reason = "this build has no CUDA";
  return 0;
}

std::unique_ptr<Backend> makeGpuBackend(int) {
  throw Error("this build has no CUDA: configure it with -Dcuda=enabled", ErrorCode::InvalidUsage);
}

}  // namespace mscclpp::perf
