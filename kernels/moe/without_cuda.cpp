// Replaces gpu.cu in a build without the CUDA toolkit.
#include "kernels/moe/calls.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels::gpu {

namespace {

[[noreturn]] void throwWithoutCuda() {
  throw Error("this build of mscclpp has no CUDA: build it with -Dcuda=enabled, or use DeviceType::CPU",
              ErrorCode::InvalidUsage);
}

}  // namespace

int run(const MoeDispatchCall& /*call*/) {
  throwWithoutCuda();
}
int run(const MoeCombineCall& /*call*/) {
  throwWithoutCuda();
}
int run(const MoeLayoutCall& /*call*/) {
  throwWithoutCuda();
}
bool hasBulkCopies() {
  throwWithoutCuda();
}
std::size_t l2CacheBytes() {
  throwWithoutCuda();
}

}  // namespace mscclpp::kernels::gpu
