// What run-time compilation needs of CUDA's driver. device.cpp implements it; without_cuda.cpp replaces it in a build
// without the toolkit.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mscclpp/jit/kernel.hpp"

namespace mscclpp::jit::detail {

/// The compute capability of the current device: 90 for 9.0.
int computeCapability();

/// A cubin or PTX that the driver has read.
struct DeviceLibrary;

/// `architecture` is for messages.
std::shared_ptr<const DeviceLibrary> loadLibrary(const std::string& image, const std::string& architecture);

/// Loads a kernel by its name in the library on the current device. `name` is for messages of launches.
std::shared_ptr<const LoadedKernel> loadKernel(const std::shared_ptr<const DeviceLibrary>& library,
                                               const std::string& loweredName, const std::string& name);

int deviceOf(const LoadedKernel& kernel) noexcept;
KernelAttributes attributesOf(const LoadedKernel& kernel);
/// The arguments in a buffer that is laid out as the kernel's parameters. Throws Error(InvalidUsage) unless it is.
std::vector<KernelArgument> unpackArguments(const LoadedKernel& kernel, std::span<const std::byte> packed);
void launchKernel(const LoadedKernel& kernel, const KernelLaunch& launch, std::span<const KernelArgument> arguments);

}  // namespace mscclpp::jit::detail
