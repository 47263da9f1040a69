// A call of a plan: its checks, the message that its sizes mean, and the buffers that it uses.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/plan/user_buffers.hpp"
#include "mscclpp/kernels/executor.hpp"
#include "mscclpp/plan/message.hpp"

namespace mscclpp::kernels {

/// The arguments of Executor::execute; sizes in bytes.
struct PlanCall {
  const void* input;
  void* output;
  std::size_t inputBytes;
  std::size_t outputBytes;
  DataType type;
  ReduceOp op;
};

/// Throws Error(InvalidUsage), which names the plan.
[[noreturn]] void throwInvalidPlanCall(const ExecutionPlan& plan, const std::string& why);

/// Whether the plan has a reduction, so that its calls need an operator.
bool reduces(const plan::Plan& plan);

/// Whether the plan gives a rank an input or an output: of Custom collectives, a rank may have neither.
bool hasData(const plan::Plan& plan, int rank);
bool allRanksHaveData(const plan::Plan& plan);

/// The blocks of the rank that has the most.
int mostBlocksOf(const plan::Plan& plan);

/// Whether the message of the call is empty, so that nothing is to be done.
bool isEmpty(const PlanCall& call);

/// The message whose parts have so many bytes.
plan::Message messageOf(const plan::Plan& plan, DataType type, std::size_t partBytes);

/// Bytes of the rank's part of the plan's input or output that the message has.
std::size_t inputBytesOf(const plan::Plan& plan, const plan::Message& message, int rank);
std::size_t outputBytesOf(const plan::Plan& plan, const plan::Message& message, int rank);

/// A rank of so many, as the communicator has them.
struct RankOf {
  int rank, ranks;
};

/// The message of a call, whose sizes become those that the plan uses. rank: with which execute() was called. Throws
/// Error(InvalidUsage) with a sentence if that is not the caller's, if the sizes, addresses, type or operator do not
/// fit the plan, or if buffers overlap in a way that it is not made for.
plan::Message fitToPlan(const ExecutionPlan& plan, PlanCall& call, int rank, const RankOf& caller);

/// The buffers of a valid call, and those of all ranks.
BufferRequest bufferRequestOf(const ExecutionPlan& plan, const plan::Message& message, const PlanCall& call, int ranks);

}  // namespace mscclpp::kernels
