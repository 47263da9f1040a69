// Names of GPU architectures: what is accepted, and which one fits a device.
#include "kernels/jit/architecture.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "mscclpp/host/base/error.hpp"

using namespace mscclpp;
using namespace mscclpp::jit::detail;

namespace {

const std::vector<int> supported = {75, 80, 90, 100};

std::string errorOf(const std::string& architecture) {
  try {
    checkArchitecture(architecture, supported);
    return "";
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::InvalidUsage);
    return error.what();
  }
}

}  // namespace

TEST_CASE("architectures are sm_XX and compute_XX, with a or f") {
  for (const char* good : {"sm_80", "sm_90a", "sm_100f", "compute_75", "compute_90a"}) CHECK(errorOf(good) == "");
  for (const std::string bad :
       {"90", "sm90", "sm_", "sm_a", "sm_90b", "sm_90a ", "SM_90", "compute_", "sm_-90", "lto_90"}) {
    CAPTURE(bad);
    const std::string error = errorOf(bad);
    CHECK(error.find("\"" + bad + "\"") != std::string::npos);
    CHECK(error.find("sm_90a") != std::string::npos);
  }
}

TEST_CASE("an architecture that NVRTC does not know is an error that lists those it knows") {
  const std::string error = errorOf("sm_70");
  CHECK(error.find("sm_70") != std::string::npos);
  CHECK(error.find("75, 80, 90, 100") != std::string::npos);
}

TEST_CASE("PTX and machine code are told apart") {
  CHECK(isPtxArchitecture("compute_90"));
  CHECK_FALSE(isPtxArchitecture("sm_90a"));
}

TEST_CASE("a device gets machine code with its own features, or the newest PTX") {
  CHECK(architectureFor(80, supported) == "sm_80");
  CHECK(architectureFor(90, supported) == "sm_90a");
  CHECK(architectureFor(100, supported) == "sm_100a");
  CHECK(architectureFor(86, supported) == "compute_80");
  CHECK(architectureFor(120, supported) == "compute_100");
  CHECK_THROWS_AS(architectureFor(70, supported), Error);
}
