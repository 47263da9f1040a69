// Replaces gpu.cu in a build without CUDA.
#include "benchmark_case.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::bench {

Result runOnGpu(const BenchmarkCase&) {
  throw Error("this build has no CUDA", ErrorCode::InvalidUsage);
}

std::string gpuName() {
  return {};
}

}  // namespace mscclpp::bench
