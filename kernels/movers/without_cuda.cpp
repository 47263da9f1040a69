// Replaces gpu_engine.cu in a build without the CUDA toolkit.
#include "kernels/movers/engine.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels {

std::unique_ptr<Engine> makeGpuEngine(const MoverBarrier::Args& /*barrier*/, int /*copiesPerTransfer*/) {
  throw Error("this build of mscclpp has no CUDA: build it with -Dcuda=enabled, or use DeviceType::CPU",
              ErrorCode::InvalidUsage);
}

}  // namespace mscclpp::kernels
