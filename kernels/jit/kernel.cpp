#include "mscclpp/jit/kernel.hpp"

#include "kernels/jit/device.hpp"

namespace mscclpp::jit {

KernelAttributes Kernel::attributes() const {
  return detail::attributesOf(*loaded_);
}

int Kernel::deviceId() const noexcept {
  return detail::deviceOf(*loaded_);
}

void Kernel::launchWith(const KernelLaunch& launch, std::span<const detail::KernelArgument> arguments) const {
  detail::launchKernel(*loaded_, launch, arguments);
}

void Kernel::launchPacked(const KernelLaunch& launch, std::span<const std::byte> arguments) const {
  detail::launchKernel(*loaded_, launch, detail::unpackArguments(*loaded_, arguments));
}

}  // namespace mscclpp::jit
