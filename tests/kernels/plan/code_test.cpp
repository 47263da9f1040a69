// The code of plans compiles at run time, from the headers that the library has in it.
#include <doctest/doctest.h>

#include "kernels/plan/plan_source.hpp"
#include "mscclpp/jit/program.hpp"
#include "tests/plan/sample_plans.hpp"

using namespace mscclpp;

namespace {

void checkCode(const plan::Plan& plan, const kernels::PlanVariant& variant) {
  const std::string source = kernels::sourceOf(plan::programOf(plan, 0), variant);
  CHECK_NOTHROW(jit::compile(
      {.source = source, .name = "plan.cu", .kernels = {kernels::planKernelName}, .architecture = "sm_90a"}));
}

}  // namespace

TEST_CASE("packets") {
  checkCode(plan::twoShotPacketPlan(3, 2), {DataType::BFLOAT16, ReduceOp::AVG, plan::PacketFormat::LL8, 3, 256});
}

TEST_CASE("signals in a loop, transfers of several chunks") {
  checkCode(plan::oneShotInPlacePlan(2, 4096), {DataType::FLOAT32, ReduceOp::MAX, plan::PacketFormat::LL16, 3, 512});
}

TEST_CASE("ports, barriers and semaphores") {
  checkCode(plan::twoShotPlan(2, 2, 0, plan::Access::Port),
            {DataType::INT32, ReduceOp::SUM, plan::PacketFormat::LL16, 2, kernels::mostPlanThreads});
  for (const bool bySemaphores : {false, true}) {
    checkCode(plan::gatherByReadingPlan(2, bySemaphores),
              {DataType::UINT8, ReduceOp::SUM, plan::PacketFormat::LL16, 1, kernels::mostPlanThreads});
  }
}
