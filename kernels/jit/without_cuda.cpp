// Replaces device.cpp in a build without the CUDA toolkit: kernels are compiled, and cannot be loaded.
#include "host/cuda/no_cuda.hpp"
#include "kernels/jit/device.hpp"

namespace mscclpp::jit::detail {

using mscclpp::detail::noCuda;

struct DeviceLibrary {};
struct LoadedKernel {};

int computeCapability() {
  noCuda();
}
std::shared_ptr<const DeviceLibrary> loadLibrary(const std::string&, const std::string&) {
  noCuda();
}
std::shared_ptr<const LoadedKernel> loadKernel(const std::shared_ptr<const DeviceLibrary>&, const std::string&,
                                               const std::string&) {
  noCuda();
}
int deviceOf(const LoadedKernel&) noexcept {
  return -1;
}
KernelAttributes attributesOf(const LoadedKernel&) {
  noCuda();
}
std::vector<KernelArgument> unpackArguments(const LoadedKernel&, std::span<const std::byte>) {
  noCuda();
}
void launchKernel(const LoadedKernel&, const KernelLaunch&, std::span<const KernelArgument>) {
  noCuda();
}

}  // namespace mscclpp::jit::detail
