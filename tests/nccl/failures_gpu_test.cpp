// Aborts of communicators of GPUs that share connections.
#include <doctest/doctest.h>

#include "tests/nccl/failure_cases.hpp"
#include "tests/nccl/gpu_client.hpp"

using namespace mscclpp::test;

TEST_CASE("the abort of a part ends what its peers wait for there, and nothing else") {
  onRanks<GpuClient>(gpuRanks(), [](Client<GpuClient>& c) { checkAbortOfPart(c); });
}
