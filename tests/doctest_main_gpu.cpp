// The main function of every GPU test executable: runs the cases, or says why it cannot.
// Exit code 77 means "skipped", and only the absence of GPUs earns it: a broken driver is a failure.
// MSCCLPP_REQUIRE_GPU=1, set where there must be GPUs, turns the skip into a failure too.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "run_test_cases.hpp"

#ifndef MSCCLPP_TEST_GPUS
#define MSCCLPP_TEST_GPUS 1
#endif

namespace {

constexpr int exitSkipped = 77;

bool gpuRequired() {
  const char* value = std::getenv("MSCCLPP_REQUIRE_GPU");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

// Without a driver the runtime reports "insufficient driver"; with the device files there, that is a broken machine.
bool meansNoGpu(cudaError_t error) {
  if (error == cudaErrorNoDevice) return true;
  return error == cudaErrorInsufficientDriver && !std::filesystem::exists("/dev/nvidiactl");
}

}  // namespace

int main(int argc, char** argv) {
  // A rank of a test case that has counted the GPUs; it may see fewer.
  if (std::getenv("MSCCLPP_TEST_RANK") != nullptr) return mscclpp::test::runCases(argc, argv);
  int found = 0;
  const cudaError_t error = cudaGetDeviceCount(&found);
  if (error != cudaSuccess && !meansNoGpu(error)) {
    std::fprintf(stderr, "cannot count GPUs: %s\n", cudaGetErrorString(error));
    return EXIT_FAILURE;
  }
  if (error != cudaSuccess) found = 0;
  if (found < MSCCLPP_TEST_GPUS) {
    std::fprintf(stderr, "needs %d GPU(s), found %d: %s\n", MSCCLPP_TEST_GPUS, found,
                 gpuRequired() ? "failed, since MSCCLPP_REQUIRE_GPU=1" : "skipped");
    return gpuRequired() ? EXIT_FAILURE : exitSkipped;
  }
  return mscclpp::test::runCases(argc, argv);
}
