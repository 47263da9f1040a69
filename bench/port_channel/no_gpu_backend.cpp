// Replaces gpu_backend.cu in a build without CUDA.
#include "backend.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::bench {

std::unique_ptr<Backend> makeGpuBackend(int) {
  throw Error("this build has no CUDA", ErrorCode::InvalidUsage);
}

int gpuCount() {
  return 0;
}

}  // namespace mscclpp::bench
