#include "plan_call.hpp"

#include <algorithm>
#include <string>

#include "kernels/plan/completions.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels {

namespace {

/// The parts of a buffer of so many chunks.
std::size_t partsOf(const plan::Plan& plan, int chunks) {
  return static_cast<std::size_t>(chunks) / static_cast<std::size_t>(plan.chunksPerPart);
}

/// More than any memory has: sums of such sizes do not overflow.
constexpr std::size_t mostBytes = std::size_t{1} << 60;

/// The parts of the largest buffer of any rank.
std::size_t mostPartsOf(const plan::Plan& plan) {
  std::size_t most = 1;
  for (const plan::RankPlan& rank : plan.rankPlans)
    most = std::max({most, partsOf(plan, rank.inputChunks), partsOf(plan, rank.outputChunks)});
  return most;
}

bool overlap(const void* a, std::size_t aBytes, const void* b, std::size_t bBytes) {
  const auto* first = static_cast<const std::byte*>(a);
  const auto* second = static_cast<const std::byte*>(b);
  return aBytes != 0 && bBytes != 0 && first < second + bBytes && second < first + aBytes;
}

/// What a rank's buffers are in a call. In place, the smaller of its input and output is the rank's part of the larger.
BufferRequest::Sizes sizesOf(const ExecutionPlan& plan, const plan::Message& message, int rank) {
  const plan::RankPlan& of = plan.plan().rankPlans[static_cast<std::size_t>(rank)];
  BufferRequest::Sizes sizes{inputBytesOf(plan.plan(), message, rank), outputBytesOf(plan.plan(), message, rank), 0, 0};
  if (!plan.isInPlace() || of.inputChunks == of.outputChunks || of.inputChunks == 0 || of.outputChunks == 0)
    return sizes;
  const std::size_t part = static_cast<std::size_t>(rank) * message.partBytes;
  (of.inputChunks < of.outputChunks ? sizes.inputOffset : sizes.outputOffset) = part;
  return sizes;
}

}  // namespace

void throwInvalidPlanCall(const ExecutionPlan& plan, const std::string& why) {
  throw Error("plan \"" + plan.name() + "\": " + why, ErrorCode::InvalidUsage);
}

bool reduces(const plan::Plan& plan) {
  for (const plan::Operation& operation : plan.operations)
    if (operation.kind == plan::OperationKind::Transfer && operation.sources.count > 1) return true;
  return false;
}

bool hasData(const plan::Plan& plan, int rank) {
  const plan::RankPlan& of = plan.rankPlans[static_cast<std::size_t>(rank)];
  return of.inputChunks != 0 || of.outputChunks != 0;
}

bool allRanksHaveData(const plan::Plan& plan) {
  for (int rank = 0; rank < plan.ranks; ++rank)
    if (!hasData(plan, rank)) return false;
  return true;
}

int mostBlocksOf(const plan::Plan& plan) {
  int most = 0;
  for (const plan::RankPlan& rank : plan.rankPlans) most = std::max(most, rank.blocks.count);
  return most;
}

bool isEmpty(const PlanCall& call) {
  return call.inputBytes == 0 && call.outputBytes == 0;
}

std::size_t inputBytesOf(const plan::Plan& plan, const plan::Message& message, int rank) {
  return partsOf(plan, plan.rankPlans[rank].inputChunks) * message.partBytes;
}
std::size_t outputBytesOf(const plan::Plan& plan, const plan::Message& message, int rank) {
  return partsOf(plan, plan.rankPlans[rank].outputChunks) * message.partBytes;
}

namespace {

/// Without checks of the rank and of overlaps.
plan::Message messageOfCall(const ExecutionPlan& executionPlan, const PlanCall& call, int rank, int ranks) {
  const plan::NamedPlan& plan = executionPlan.plan();
  const auto require = [&](bool condition, const std::string& why) {
    if (!condition) throwInvalidPlanCall(executionPlan, why);
  };
  const auto text = [](auto number) { return std::to_string(number); };
  require(plan.ranks == ranks, "it is for " + text(plan.ranks) + " ranks, but the communicator has " + text(ranks));
  require(executionPlan.rank() == rank, "it was loaded for rank " + text(executionPlan.rank()) + ", but this is rank " +
                                            text(rank) + " of the communicator");
  const std::size_t size = sizeOf(call.type);
  require(size != 0, std::string("data type ") + nameOf(call.type) + " is not supported");
  if (reduces(plan)) {
    require(RuntimeOp{call.op}.isValid(), std::string("operator ") + nameOf(call.op) + " is not supported");
    require(call.op != ReduceOp::AVG || plan::canAverage(plan),
            "it cannot average: it is of a custom collective, or reduces partial and whole sums in one operation; "
            "reduce by SUM and divide");
  }

  const plan::RankPlan& own = plan.rankPlans[rank];
  const std::size_t inputParts = partsOf(plan, own.inputChunks);
  const std::size_t outputParts = partsOf(plan, own.outputChunks);
  std::size_t partBytes = 0;
  if (inputParts != 0) {
    require(call.inputBytes % (inputParts * size) == 0,
            "the input has " + text(call.inputBytes) + " bytes, which are not " +
                (inputParts == 1 ? "a whole number" : text(inputParts) + " equal parts") + " of elements of " +
                text(size) + " bytes");
    partBytes = call.inputBytes / inputParts;
  } else if (outputParts != 0) {
    partBytes = call.outputBytes / outputParts / size * size;
  }
  require(partBytes <= mostBytes / mostPartsOf(plan),
          "the input has " + text(call.inputBytes) + " bytes, and the output " + text(call.outputBytes) +
              ", which is more than any memory: pass sizes in bytes, which are not negative");
  const std::size_t outputBytes = outputParts * partBytes;
  require(call.outputBytes >= outputBytes, "the output has " + text(call.outputBytes) + " bytes, but needs " +
                                               text(outputBytes) + " for an input of " + text(call.inputBytes));
  const auto requireAddress = [&](const char* what, const void* address, std::size_t bytes) {
    require(bytes == 0 || address != nullptr, std::string("the ") + what + " is null");
    require(bytes == 0 || reinterpret_cast<std::uintptr_t>(address) % size == 0,
            std::string("the ") + what + " is not aligned to its elements of " + text(size) + " bytes");
  };
  requireAddress("input", call.input, inputParts * partBytes);
  requireAddress("output", call.output, outputBytes);
  return messageOf(plan, call.type, partBytes);
}

}  // namespace

plan::Message messageOf(const plan::Plan& plan, DataType type, std::size_t partBytes) {
  return plan::messageOf(partBytes, sizeOf(type), plan.chunksPerPart, static_cast<std::uint64_t>(plan.alignment));
}

plan::Message fitToPlan(const ExecutionPlan& plan, PlanCall& call, int rank, const RankOf& caller) {
  if (rank != caller.rank) {
    throwInvalidPlanCall(plan, "execute() is called for rank " + std::to_string(rank) + ", but this is rank " +
                                   std::to_string(caller.rank) + " of the communicator");
  }
  const plan::Message message = messageOfCall(plan, call, rank, caller.ranks);
  const BufferRequest::Sizes sizes = sizesOf(plan, message, rank);
  if (plan.isInPlace() && sizes.input != 0 && sizes.output != 0) {
    const std::size_t offset = sizes.inputOffset + sizes.outputOffset;
    const bool isOutputLarger = sizes.input < sizes.output;
    const auto* const larger = static_cast<const std::byte*>(isOutputLarger ? call.output : call.input);
    const void* const smaller = isOutputLarger ? call.input : call.output;
    if (smaller != larger + offset) {
      throwInvalidPlanCall(
          plan,
          "it is made for calls in place: pass an output that is the input, or the smaller of both as the rank's part "
          "of the larger");
    }
  } else if (overlap(call.input, sizes.input, call.output, sizes.output)) {
    throwInvalidPlanCall(plan, "it is not made for calls in place, but input and output overlap");
  }
  call.inputBytes = sizes.input;
  call.outputBytes = sizes.output;
  return message;
}

BufferRequest bufferRequestOf(const ExecutionPlan& plan, const plan::Message& message, const PlanCall& call,
                              int ranks) {
  BufferRequest request{const_cast<void*>(call.input), call.output, {}, plan.isInPlace(), plan.plan().reuseResources};
  for (int rank = 0; rank < ranks; ++rank) request.ofRanks.push_back(sizesOf(plan, message, rank));
  return request;
}

}  // namespace mscclpp::kernels
