// Stands in for kernels/gpu/ in a build without the CUDA toolkit.
#include "../backend.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::kernels {

const Backend& gpuBackend() {
  throw Error("this build of mscclpp has no CUDA: build it with -Dcuda=enabled, or ask for DeviceType::CPU",
              ErrorCode::InvalidUsage);
}

}  // namespace mscclpp::kernels
