// The initialisation of a host thread that serves a GPU.
#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "host/cuda/gpu_backend.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::detail {

void initGpuThread(int device) {
  checkGpu(device);
  MSCCLPP_CUDATHROW(cudaSetDevice(device));
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  MSCCLPP_CUDATHROW(cudaThreadExchangeStreamCaptureMode(&mode));
}

std::string gpuPciBusId(int device) {
  checkGpu(device);
  std::array<char, 32> address{};
  MSCCLPP_CUDATHROW(cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), device));
  std::string text = address.data();
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace mscclpp::detail
