// Starts one rank per GPU.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "example.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace example {

/// Runs body on a rank for each GPU, `maxGpus` at most, with the rank's GPU made current. Returns the exit status for
/// main: 77, which test runners take for "skipped", where there are fewer than `minGpus` GPUs; a failure if
/// MSCCLPP_REQUIRE_GPU=1.
inline int runOnGpus(int minGpus, int maxGpus, int argc, char** argv,
                     const std::function<void(mscclpp::ProcessGroup&)>& body) {
  int gpus = 0;
  const cudaError_t error = cudaGetDeviceCount(&gpus);
  // Without a driver the runtime reports it as insufficient; if the device files exist, the driver is broken.
  const bool none = error == cudaErrorNoDevice ||
                    (error == cudaErrorInsufficientDriver && !std::filesystem::exists("/dev/nvidiactl"));
  if (error != cudaSuccess && !none) {
    std::fprintf(stderr, "cannot count GPUs: %s\n", cudaGetErrorString(error));
    return 1;
  }
  if (error != cudaSuccess || gpus < minGpus) {
    const char* required = std::getenv("MSCCLPP_REQUIRE_GPU");
    std::fprintf(stderr, "needs %d GPUs, found %d\n", minGpus, error == cudaSuccess ? gpus : 0);
    return required != nullptr && std::string_view(required) == "1" ? 1 : 77;
  }
  return runOnRanks(std::min(gpus, maxGpus), argc, argv, [&](mscclpp::ProcessGroup& group) {
    MSCCLPP_CUDATHROW(cudaSetDevice(group.localRank()));
    body(group);
  });
}

}  // namespace example
