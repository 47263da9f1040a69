#include "mscclpp/kernels/plan/verify.hpp"

#include "message.hpp"
#include "mscclpp/plan/check.hpp"
#include "mscclpp/plan/fault_message.hpp"

namespace mscclpp::plan {

bool place(Plan& plan) {
  return !setPositions(plan);
}

NamedPlan placed(NamedPlan plan) {
  setPositions(plan);  // what it cannot follow, check() finds
  return plan;
}

bool isRight(const Plan& plan) {
  return !check(plan);
}

NamedPlan verified(NamedPlan plan) {
  setPositions(plan);
  if (const Fault fault = check(plan)) reject(describe(plan, fault));
  return plan;
}

}  // namespace mscclpp::plan
