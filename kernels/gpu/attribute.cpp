#include "kernels/gpu/attribute.hpp"

#include "host/cuda/gpu_backend.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::kernels::gpu {

int attribute(cudaDeviceAttr which) {
  int value = 0;
  MSCCLPP_CUDATHROW(cudaDeviceGetAttribute(&value, which, mscclpp::detail::currentGpu()));
  return value;
}

}  // namespace mscclpp::kernels::gpu
