// What the C API needs of the CUDA runtime; on CPU ranks, and in a build without CUDA, there is no device.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "kernels/nccl/types.hpp"
#include "mscclpp/host/base/device.hpp"

namespace mscclpp::nccl {

inline constexpr int noDevice = -1;

/// GPU, or CPU with MSCCLPP_NCCL_DEVICE=cpu. Throws ncclInvalidUsage for GPU in a build without CUDA.
DeviceType deviceType();
/// The current device of this thread; noDevice on CPU ranks.
int currentDevice();

/// Makes a device current for a scope; noDevice changes nothing.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int previous_ = noDevice;
};

/// Waits for the work that was enqueued on a device, also if it fails; noDevice has none.
void waitForDevice(int device) noexcept;

/// Memory of the current device that ranks can map, or of the host for CPU ranks; zero-filled.
std::shared_ptr<void> allocate(std::size_t bytes);

/// Makes `stream` wait for the work that is in `others` now, or `others` for that in `stream`, without blocking the
/// host; in a capture too. Streams may be named more than once.
void waitForStreams(cudaStream_t stream, std::span<const cudaStream_t> others);
void letStreamsWait(std::span<const cudaStream_t> others, cudaStream_t stream);
void recordEvent(cudaEvent_t event, cudaStream_t stream);
/// Whether a graph captures what is enqueued; true if that cannot be known.
bool isCapturing(cudaStream_t stream) noexcept;

namespace gpu {
// The same on GPUs: gpu_device.cpp, or no_gpu_device.cpp in a build without CUDA.
inline constexpr const char* absent =
    "this build of mscclpp has no CUDA: set MSCCLPP_NCCL_DEVICE=cpu for ranks without a GPU, or build it with "
    "-Dcuda=enabled";
bool isBuilt();
int currentDevice();
void setDevice(int device);
void waitForCurrentDevice();
std::shared_ptr<void> allocate(std::size_t bytes);
void waitForStreams(cudaStream_t stream, std::span<const cudaStream_t> others);
void letStreamsWait(std::span<const cudaStream_t> others, cudaStream_t stream);
void recordEvent(cudaEvent_t event, cudaStream_t stream);
bool isCapturing(cudaStream_t stream) noexcept;
}  // namespace gpu

}  // namespace mscclpp::nccl
