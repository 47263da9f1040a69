// Stands in for gpu.cu where there is no CUDA.
#include "mscclpp/host/error.hpp"
#include "place.hpp"

namespace mscclpp::bench {

Result runOnGpu(const Case&) {
  throw Error("this build has no CUDA", ErrorCode::InvalidUsage);
}

std::string gpuName() {
  return {};
}

}  // namespace mscclpp::bench
