// Replaces kernels/gpu/ in a build without the CUDA toolkit.
#include "kernels/backend.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels {

const Backend& gpuBackend() {
  throw Error("this build of mscclpp has no CUDA: build it with -Dcuda=enabled, or use DeviceType::CPU",
              ErrorCode::InvalidUsage);
}

}  // namespace mscclpp::kernels
