// Plans that can be executed.
#include <cstring>
#include <utility>

#include "kernels/plan/proofs.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/executor.hpp"
#include "mscclpp/kernels/plan/file.hpp"
#include "mscclpp/kernels/plan/without_switches.hpp"

namespace mscclpp {

namespace {

void requireRank(const plan::NamedPlan& plan, int rank) {
  if (rank >= 0 && rank < plan.ranks) return;
  throw Error("ExecutionPlan: the plan \"" + plan.name + "\" is for " + std::to_string(plan.ranks) +
                  " ranks, of which " + std::to_string(rank) + " is none",
              ErrorCode::InvalidUsage);
}

}  // namespace

ExecutionPlan::ExecutionPlan(const std::string& planPath, int rank) : ExecutionPlan(plan::fromFile(planPath), rank) {}

ExecutionPlan::ExecutionPlan(plan::NamedPlan plan, int rank) : rank_(rank) {
  plan = plan::Proofs::ofUser().verified(plan::withoutSwitches(std::move(plan)));
  requireRank(plan, rank);
  const auto digest = plan::digestOf(plan);
  std::memcpy(&contentHash_, digest.data(), sizeof(contentHash_));
  plan_ = std::make_shared<const plan::NamedPlan>(std::move(plan));
}

ExecutionPlan ExecutionPlan::forRank(int rank) const {
  ExecutionPlan plan = *this;
  requireRank(*plan_, rank);
  plan.rank_ = rank;
  return plan;
}

const std::string& ExecutionPlan::name() const noexcept {
  return plan_->name;
}

std::string ExecutionPlan::collective() const {
  switch (plan_->collective) {
    case plan::CollectiveKind::AllReduce:
      return "allreduce";
    case plan::CollectiveKind::AllGather:
      return "allgather";
    case plan::CollectiveKind::ReduceScatter:
      return "reducescatter";
    case plan::CollectiveKind::AllToAll:
      return "alltoall";
    case plan::CollectiveKind::Broadcast:
      return "broadcast";
    case plan::CollectiveKind::Reduce:
      return "reduce";
    case plan::CollectiveKind::Gather:
      return "gather";
    case plan::CollectiveKind::Scatter:
      return "scatter";
    case plan::CollectiveKind::SendReceive:
      return "sendrecv";
    case plan::CollectiveKind::Custom:
      break;
  }
  return "custom";
}

std::size_t ExecutionPlan::minMessageSize() const noexcept {
  return plan_->minBytes;
}
std::size_t ExecutionPlan::maxMessageSize() const noexcept {
  return plan_->maxBytes;
}
bool ExecutionPlan::isInPlace() const noexcept {
  return plan_->inPlace;
}

}  // namespace mscclpp
