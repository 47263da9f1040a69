// Replaces gpu_test_data.cu and timing_kernels.cu in a build without CUDA.
#include "mscclpp/host/base/error.hpp"
#include "test_data.hpp"
#include "timing_kernels.hpp"

namespace mscclpp::perf {

namespace {

[[noreturn]] void throwNoCuda() {
  throw Error("this build has no CUDA: configure it with -Dcuda=enabled", ErrorCode::InvalidUsage);
}

}  // namespace

std::unique_ptr<TestData> makeGpuTestData() {
  throwNoCuda();
}

std::unique_ptr<TimingKernels> makeTimingKernels(int /*rank*/) {
  throwNoCuda();
}

}  // namespace mscclpp::perf
