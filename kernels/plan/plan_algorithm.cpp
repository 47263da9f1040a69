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
    : id_(std::move(id)),
      collective_(plan.collective()),
      plan_(std::move(plan)),
      messageRange_(plan_.minMessageSize(), plan_.maxMessageSize()),
      bufferMode_(plan_.isInPlace() ? CollectiveBufferMode::InPlace : CollectiveBufferMode::OutOfPlace),
      tags_(std::move(tags)),
      constraint_(constraint),
      where_(where),
      executors_(std::make_unique<Executors>()) {
  if (id_.empty()) throw Error("DslAlgorithm: give it a name", ErrorCode::InvalidUsage);
  if (constraint_.worldSize == 0) constraint_.worldSize = plan_.plan().ranks;
}
DslAlgorithm::~DslAlgorithm() = default;

void DslAlgorithm::setMessageSizeRange(std::size_t minMessageSize, std::size_t maxMessageSize) {
  if (minMessageSize > maxMessageSize) {
    throw Error("algorithm " + id_ + ": the shortest message, " + std::to_string(minMessageSize) +
                    " bytes, is longer than the longest, " + std::to_string(maxMessageSize),
                ErrorCode::InvalidUsage);
  }
  messageRange_ = {minMessageSize, maxMessageSize};
}

CommResult DslAlgorithm::execute(std::shared_ptr<Communicator> communicator, const void* input, void* output,
                                 std::size_t inputSize, std::size_t outputSize, DataType dtype, ReduceOp op,
                                 CUstream_st* stream, std::shared_ptr<Executor> executor, int, int, bool,
                                 const std::unordered_map<std::string, std::uintptr_t>& extras, DataType) {
  return resultOf(id_, [&] {
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
                      isLl8 ? PacketType::LL8 : PacketType::LL16, op);
    return CommResult::CommSuccess;
  });
}

void DslAlgorithm::reset() {
  executors_->clear();
}

}  // namespace mscclpp
