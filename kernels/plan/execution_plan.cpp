// Plans that can be executed.
#include <fstream>
#include <iterator>
#include <utility>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/executor.hpp"
#include "mscclpp/kernels/plan/json.hpp"
#include "mscclpp/kernels/plan/verify.hpp"

namespace mscclpp {

namespace {

/// FNV-1a over values.
class ContentHash {
 public:
  template <class... Values>
  void add(Values... values) {
    (addOne(static_cast<std::uint64_t>(values)), ...);
  }
  void add(const plan::Range& range) { add(range.first, range.count); }
  std::uint64_t value() const { return value_; }

 private:
  void addOne(std::uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) value_ = (value_ ^ (value >> (8 * byte) & 0xff)) * 1099511628211u;
  }
  std::uint64_t value_ = 14695981039346656037u;
};

std::uint64_t hashOf(const plan::Plan& plan) {
  ContentHash hash;
  hash.add(plan.collective, plan.ranks, plan.root, plan.chunksPerPart, plan.inPlace, plan.threadsPerBlock,
           plan.alignment, plan.doubleScratch, plan.reuseResources);
  for (const plan::RankPlan& rank : plan.rankPlans) {
    hash.add(rank.inputChunks, rank.outputChunks, rank.scratchChunks);
    hash.add(rank.blocks);
    hash.add(rank.channels);
    hash.add(rank.semaphores);
  }
  for (const plan::Block& block : plan.blocks) hash.add(block.operations);
  for (const plan::Operation& operation : plan.operations) {
    hash.add(operation.kind, operation.relaxed, operation.chunks, operation.position, operation.index, operation.blocks,
             operation.share, operation.shares, operation.unitBytes);
    hash.add(operation.sources);
    hash.add(operation.destinations);
    hash.add(operation.references);
  }
  for (const plan::Operand& operand : plan.operands)
    hash.add(operand.buffer, operand.form, operand.access, operand.rank, operand.channel, operand.first);
  for (const plan::Channel& channel : plan.channels) {
    hash.add(channel.access, channel.peer, channel.buffer);
    hash.add(channel.members);
  }
  for (const std::int32_t reference : plan.references) hash.add(reference);
  return hash.value();
}

void requireRank(const plan::NamedPlan& plan, int rank) {
  if (rank >= 0 && rank < plan.ranks) return;
  throw Error("ExecutionPlan: the plan \"" + plan.name + "\" is for " + std::to_string(plan.ranks) +
                  " ranks, of which " + std::to_string(rank) + " is none",
              ErrorCode::InvalidUsage);
}

std::string contentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string content((std::istreambuf_iterator<char>(file)), {});
  if (!file) throw Error("ExecutionPlan: the file " + path + " cannot be read", ErrorCode::InvalidUsage);
  return content;
}

}  // namespace

ExecutionPlan::ExecutionPlan(const std::string& planPath, int rank)
    : ExecutionPlan(plan::fromJson(contentOf(planPath)), rank) {}

ExecutionPlan::ExecutionPlan(plan::NamedPlan plan, int rank) : rank_(rank) {
  plan = plan::verified(std::move(plan));
  requireRank(plan, rank);
  contentHash_ = hashOf(plan);
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
