#include "kernels/jit/device.hpp"

#include <utility>
#include <vector>

#include "host/cuda/driver.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "host/cuda/gpu_owner.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"

namespace mscclpp::jit::detail {

using mscclpp::detail::currentGpu;
using mscclpp::detail::driver;
using mscclpp::detail::kernelDriver;

struct DeviceLibrary {
  CUlibrary handle = nullptr;
  std::string architecture;

  DeviceLibrary() = default;
  DeviceLibrary(const DeviceLibrary&) = delete;
  DeviceLibrary& operator=(const DeviceLibrary&) = delete;
  ~DeviceLibrary() {
    if (handle != nullptr) mscclpp::detail::freeOnGpu(-1, [&] { kernelDriver().libraryUnload(handle); });
  }
};

struct LoadedKernel {
  std::shared_ptr<const DeviceLibrary> library;
  std::string name;
  CUfunction function = nullptr;
  int device = -1;
  KernelAttributes attributes{};
  struct Parameter {
    std::size_t offset;  ///< from the first one
    std::size_t bytes;
  };
  std::vector<Parameter> parameters;
};

namespace {

void checkLoaded(CUresult result, const std::string& architecture) {
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_INVALID_PTX ||
      result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION) {
    throw Error("the program was compiled for " + architecture + ", which the current device (" +
                    std::to_string(currentGpu()) + ", compute capability " + std::to_string(computeCapability() / 10) +
                    "." + std::to_string(computeCapability() % 10) +
                    ") or its driver does not run; leave CompileRequest::architecture empty with this device current",
                ErrorCode::InvalidUsage);
  }
  if (result != CUDA_SUCCESS) throw CuError("loading a program compiled for " + architecture, result);
}

int attributeOf(CUfunction function, CUfunction_attribute attribute) {
  int value = 0;
  MSCCLPP_CUTHROW(kernelDriver().funcGetAttribute(&value, attribute, function));
  return value;
}

// The driver answers an index after the last parameter with an error.
std::vector<LoadedKernel::Parameter> parametersOf(CUfunction function) {
  std::vector<LoadedKernel::Parameter> parameters;
  std::size_t offset = 0, first = 0, bytes = 0;
  while (kernelDriver().funcGetParamInfo(function, parameters.size(), &offset, &bytes) == CUDA_SUCCESS) {
    if (parameters.empty()) first = offset;
    parameters.push_back({offset - first, bytes});
  }
  return parameters;
}

[[noreturn]] void throwInvalid(const LoadedKernel& kernel, const std::string& why) {
  throw Error("cannot launch kernel " + kernel.name + ": " + why, ErrorCode::InvalidUsage);
}

void check(const LoadedKernel& kernel, const LaunchShape& shape, std::span<const KernelArgument> arguments) {
  if (shape.blocks < 1 || shape.threads < 1 || shape.threads > kernel.attributes.maxBlockThreads) {
    throwInvalid(kernel, std::to_string(shape.blocks) + " blocks of " + std::to_string(shape.threads) +
                             " threads; pass at least one block, and 1 to " +
                             std::to_string(kernel.attributes.maxBlockThreads) + " threads");
  }
  if (arguments.size() != kernel.parameters.size()) {
    throwInvalid(kernel, "it has " + std::to_string(kernel.parameters.size()) + " parameters, and " +
                             std::to_string(arguments.size()) + " arguments were passed");
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].bytes == kernel.parameters[i].bytes) continue;
    throwInvalid(kernel, "argument " + std::to_string(i + 1) + " has " + std::to_string(arguments[i].bytes) +
                             " bytes, and the parameter " + std::to_string(kernel.parameters[i].bytes) +
                             "; pass a value of the parameter's exact type");
  }
}

}  // namespace

int computeCapability() {
  const int device = currentGpu();
  int major = 0, minor = 0;
  MSCCLPP_CUDATHROW(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  MSCCLPP_CUDATHROW(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}

std::shared_ptr<const DeviceLibrary> loadLibrary(const std::string& image, const std::string& architecture) {
  const AvoidCudaGraphCaptureGuard captureGuard;
  driver();  // the current device has a context from here on
  const auto library = std::make_shared<DeviceLibrary>();
  library->architecture = architecture;
  // The driver copies the image. PTX ends in a zero, as every std::string does.
  checkLoaded(kernelDriver().libraryLoadData(&library->handle, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
              architecture);
  mscclpp::detail::setGpuOwner();
  return library;
}

std::shared_ptr<const LoadedKernel> loadKernel(const std::shared_ptr<const DeviceLibrary>& library,
                                               const std::string& loweredName, const std::string& name) {
  const AvoidCudaGraphCaptureGuard captureGuard;
  driver();  // the current device has a context from here on
  const auto kernel = std::make_shared<LoadedKernel>();
  kernel->library = library;
  kernel->name = name;
  kernel->device = currentGpu();
  CUkernel handle = nullptr;
  checkLoaded(kernelDriver().libraryGetKernel(&handle, library->handle, loweredName.c_str()), library->architecture);
  // This loads it in the current context, which otherwise the first launch would do.
  checkLoaded(kernelDriver().kernelGetFunction(&kernel->function, handle), library->architecture);
  kernel->attributes = {attributeOf(kernel->function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
                        attributeOf(kernel->function, CU_FUNC_ATTRIBUTE_NUM_REGS),
                        attributeOf(kernel->function, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
                        attributeOf(kernel->function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)};
  kernel->parameters = parametersOf(kernel->function);
  return kernel;
}

int deviceOf(const LoadedKernel& kernel) noexcept {
  return kernel.device;
}

KernelAttributes attributesOf(const LoadedKernel& kernel) {
  return kernel.attributes;
}

std::vector<KernelArgument> unpackArguments(const LoadedKernel& kernel, std::span<const std::byte> packed) {
  std::vector<KernelArgument> arguments;
  std::size_t end = 0;
  for (const auto& parameter : kernel.parameters) {
    end = parameter.offset + parameter.bytes;
    if (end > packed.size()) break;
    arguments.push_back({packed.data() + parameter.offset, parameter.bytes});
  }
  if (end != packed.size()) {
    throwInvalid(kernel, "the packed arguments have " + std::to_string(packed.size()) + " bytes, and parameters 1 to " +
                             std::to_string(arguments.size()) + " of " + std::to_string(kernel.parameters.size()) +
                             " end at byte " + std::to_string(end) +
                             "; pass values of the parameters' exact types, in order");
  }
  return arguments;
}

void launchKernel(const LoadedKernel& kernel, const KernelLaunch& launch, std::span<const KernelArgument> arguments) {
  check(kernel, launch.shape, arguments);
  const CudaDeviceGuard deviceGuard(kernel.device);
  // The guard changes nothing if the device is current, and then a new thread has no context yet.
  MSCCLPP_CUDATHROW(cudaSetDevice(kernel.device));
  // More than the default needs permission. Never lowered, since another thread may be about to launch with more.
  if (launch.sharedBytes > 0 &&
      launch.sharedBytes >
          static_cast<std::size_t>(attributeOf(kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES))) {
    MSCCLPP_CUTHROW(kernelDriver().funcSetAttribute(kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                    static_cast<int>(launch.sharedBytes)));
  }
  std::vector<void*> pointers;
  for (const auto& argument : arguments) pointers.push_back(const_cast<void*>(argument.data));
  CUlaunchAttribute overlap{};
  overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  overlap.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(launch.shape.blocks);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = static_cast<unsigned>(launch.shape.threads);
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(launch.sharedBytes);
  config.hStream = launch.stream;
  config.attrs = &overlap;
  config.numAttrs = launch.overlapPrevious ? 1 : 0;
  MSCCLPP_CUTHROW(kernelDriver().launchKernelEx(&config, kernel.function, pointers.data(), nullptr));
}

}  // namespace mscclpp::jit::detail
