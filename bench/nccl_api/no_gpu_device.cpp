// Replaces gpu_device.cpp in a build without the CUDA toolkit.
#include "device.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::bench {

int gpuCount() {
  return 0;
}
std::unique_ptr<RankDevice> makeGpu(int /*index*/) {
  throw Error("this build has no CUDA: use --device cpu", ErrorCode::InvalidUsage);
}

}  // namespace mscclpp::bench
