// Execution plans as algorithms.
#include <utility>

#include "kernels/algorithm_call.hpp"
#include "kernels/comm_result.hpp"
#include "kernels/context_table.hpp"
#include "mscclpp/kernels/dsl_algorithm.hpp"

namespace mscclpp {

using namespace kernels;

class DslAlgorithm::Executors : public ContextTable<int, Executor> {};

DslAlgorithm::DslAlgorithm(std::string id, ExecutionPlan plan, std::unordered_map<std::string, std::uint64_t> tags,
                           Constraint constraint, DeviceType where)
    : DescribedAlgorithm(
          {std::move(id),
           plan.collective(),
           {plan.minMessageSize(), plan.maxMessageSize()},
           plan.isInPlace() ? CollectiveBufferMode::InPlace : CollectiveBufferMode::OutOfPlace,
           std::move(tags),
           constraint.worldSize != 0 ? constraint : Constraint{plan.plan().ranks, constraint.nRanksPerNode}}),
      plan_(std::move(plan)),
      where_(where),
      executors_(std::make_unique<Executors>()) {}
DslAlgorithm::~DslAlgorithm() = default;

CommResult DslAlgorithm::execute(std::shared_ptr<Communicator> communicator, const void* input, void* output,
                                 std::size_t inputSize, std::size_t outputSize, DataType dtype, ReduceOp op,
                                 CUstream_st* stream, std::shared_ptr<Executor> executor, int, int, bool,
                                 const std::unordered_map<std::string, std::uintptr_t>& extras, DataType) {
  return resultOf(name(), [&] {
    requireAccepted(*this, communicator, {input, output, inputSize, outputSize});
    const int rank = communicator->bootstrap()->getRank();
    if (executor == nullptr) {
      executor = executors_->findOrMake(
          communicator, 0, [] {},
          [&] { return std::make_shared<Executor>(communicator, Executor::DefaultScratchBufferSize, where_); });
    }
    const auto packets = extras.find("packetType");
    const bool isLl8 = packets != extras.end() && packets->second == static_cast<std::uintptr_t>(PacketType::LL8);
    executor->execute(rank, input, output, inputSize, outputSize, dtype, plan_.forRank(rank), stream,
                      isLl8 ? PacketType::LL8 : PacketType::LL16, op == ReduceOp::NOP ? ReduceOp::SUM : op);
    return CommResult::CommSuccess;
  });
}

void DslAlgorithm::reset() {
  executors_->clear();
}

}  // namespace mscclpp
