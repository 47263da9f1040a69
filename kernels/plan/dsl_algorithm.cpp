#include "mscclpp/kernels/dsl_algorithm.hpp"

#include "kernels/algorithm_call.hpp"
#include "kernels/comm_result.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp {

DslAlgorithm::DslAlgorithm(std::string id, ExecutionPlan plan, std::unordered_map<std::string, std::uint64_t> tags,
                           Constraint constraint)
    : name_(std::move(id)),
      collective_(plan.collective()),
      plan_(std::move(plan)),
      messageRange_(plan_.minMessageSize(), plan_.maxMessageSize()),
      bufferMode_(plan_.isInPlace() ? CollectiveBufferMode::InPlace : CollectiveBufferMode::OutOfPlace),
      tags_(std::move(tags)),
      constraint_(constraint) {
  if (name_.empty()) throw Error("DslAlgorithm: give it a name", ErrorCode::InvalidUsage);
  if (constraint_.worldSize == 0) constraint_.worldSize = plan_.plan().ranks;
}

void DslAlgorithm::setMessageSizeRange(std::size_t minMessageSize, std::size_t maxMessageSize) {
  if (minMessageSize > maxMessageSize) {
    throw Error("algorithm " + name_ + ": the shortest message, " + std::to_string(minMessageSize) +
                    " bytes, is longer than the longest, " + std::to_string(maxMessageSize),
                ErrorCode::InvalidUsage);
  }
  messageRange_ = {minMessageSize, maxMessageSize};
}

CommResult DslAlgorithm::execute(std::shared_ptr<Communicator> communicator, const void* input, void* output,
                                 std::size_t inputSize, std::size_t outputSize, DataType dtype, ReduceOp op,
                                 CUstream_st* stream, std::shared_ptr<Executor> executor, int, int, bool,
                                 const std::unordered_map<std::string, std::uintptr_t>&, DataType) {
  return kernels::resultOf(name_, [&] {
    kernels::requireAccepted(*this, communicator, {input, output, inputSize, outputSize});
    if (executor == nullptr) {
      throw Error("it is an execution plan: pass an Executor of the communicator", ErrorCode::InvalidUsage);
    }
    executor->execute(communicator->bootstrap()->getRank(), input, output, inputSize, outputSize, dtype, plan_, stream,
                      PacketType::LL16, op == ReduceOp::NOP ? ReduceOp::SUM : op);
    return CommResult::CommSuccess;
  });
}

}  // namespace mscclpp
