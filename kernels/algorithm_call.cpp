// The arguments of Algorithm::execute: their checks, and the CollectiveCall that they mean.
#include "algorithm_call.hpp"

#include <algorithm>
#include <limits>

#include "call_arguments.hpp"
#include "comm_result.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp::kernels {

namespace {

[[noreturn]] void throwInvalid(const std::string& why) {
  throw Error(why, ErrorCode::InvalidUsage);
}

/// Whether the sum over the ranks of parts of `part` bytes is `all` bytes.
bool isAllOf(std::size_t all, std::size_t part, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return all % n == 0 && all / n == part;
}

/// The rank that `extras` names, or `otherwise`.
int rankIn(const std::unordered_map<std::string, std::uintptr_t>& extras, const std::string& key, int otherwise) {
  const auto found = extras.find(key);
  if (found == extras.end() || found->second == static_cast<std::uintptr_t>(-1)) return otherwise;
  if (found->second > static_cast<std::uintptr_t>(std::numeric_limits<int>::max())) {
    throwInvalid("extras[\"" + key + "\"] is " + std::to_string(found->second) + ", which is no rank");
  }
  return static_cast<int>(found->second);
}

/// Throws unless the buffers have the sizes of the collective. A rank without an input or output passes any size of 0
/// or of the full buffer.
void requireSizes(CollectiveType collective, const Buffers& buffers, bool isRoot, int ranks) {
  const std::size_t in = buffers.inputSize;
  const std::size_t out = buffers.outputSize;
  bool isRight = true;
  std::string rule;
  switch (collective) {
    case CollectiveType::AllReduce:
    case CollectiveType::AllToAll:
      isRight = in == out;
      rule = "both are the same";
      break;
    case CollectiveType::AllGather:
      isRight = isAllOf(out, in, ranks);
      rule = "outputSize is inputSize times the number of ranks";
      break;
    case CollectiveType::ReduceScatter:
      isRight = isAllOf(in, out, ranks);
      rule = "inputSize is outputSize times the number of ranks";
      break;
    case CollectiveType::Broadcast:
      isRight = in == out || (!isRoot && in == 0);
      rule = "both are the same; inputSize may be 0 if the rank is not the root";
      break;
    case CollectiveType::Reduce:
      isRight = in == out || (!isRoot && out == 0);
      rule = "both are the same; outputSize may be 0 if the rank is not the root";
      break;
    case CollectiveType::Gather:
      isRight = isAllOf(out, in, ranks) || (!isRoot && out == 0);
      rule = "outputSize is inputSize times the number of ranks; it may be 0 if the rank is not the root";
      break;
    case CollectiveType::Scatter:
      isRight = isAllOf(in, out, ranks) || (!isRoot && in == 0);
      rule = "inputSize is outputSize times the number of ranks; it may be 0 if the rank is not the root";
      break;
    case CollectiveType::SendReceive:
    case CollectiveType::ReduceScatterV:
      break;
  }
  if (isRight) return;
  throwInvalid("inputSize is " + std::to_string(in) + " and outputSize " + std::to_string(out) + " bytes on " +
               std::to_string(ranks) + " ranks, but for " + algorithmApiNameOf(collective) + " " + rule);
}

/// 8- and 16-bit floating types are accumulated in fp32, all others in their own type.
void requireAccumulator(DataType dtype, DataType accumDtype) {
  const bool isSmallFloat = dtype == DataType::FLOAT16 || dtype == DataType::BFLOAT16 ||
                            dtype == DataType::FLOAT8_E4M3FN || dtype == DataType::FLOAT8_E5M2;
  const bool isAtMostFp32 =
      accumDtype == DataType::FLOAT32 || accumDtype == DataType::FLOAT16 || accumDtype == DataType::BFLOAT16;
  if (accumDtype == DataType::AUTO || accumDtype == dtype || (isSmallFloat && isAtMostFp32)) return;
  throwInvalid(std::string("accumDtype is ") + nameOf(accumDtype) + ", but " + nameOf(dtype) + " is reduced in " +
               (isSmallFloat ? "float" : nameOf(dtype)) + ": pass DataType::AUTO");
}

}  // namespace

const char* algorithmApiNameOf(CollectiveType collective) {
  switch (collective) {
    case CollectiveType::AllReduce:
      return "allreduce";
    case CollectiveType::AllGather:
      return "allgather";
    case CollectiveType::ReduceScatter:
      return "reducescatter";
    case CollectiveType::AllToAll:
      return "alltoall";
    case CollectiveType::Broadcast:
      return "broadcast";
    case CollectiveType::Reduce:
      return "reduce";
    case CollectiveType::Gather:
      return "gather";
    case CollectiveType::Scatter:
      return "scatter";
    case CollectiveType::SendReceive:
      return "sendrecv";
    case CollectiveType::ReduceScatterV:
      return "reducescatterv";
  }
  return "unknown";
}

std::optional<CollectiveType> collectiveNamed(std::string_view name) {
  for (int i = 0; i < collectiveTypes; ++i) {
    const auto collective = static_cast<CollectiveType>(i);
    if (hasVariableCounts(collective)) continue;  // an algorithm object has no call with a count for each rank
    if (name == algorithmApiNameOf(collective)) return collective;
  }
  return std::nullopt;
}

std::size_t messageSizeOf(std::string_view collective, const Buffers& buffers, int ranks) {
  switch (collectiveNamed(collective).value_or(CollectiveType::AllReduce)) {
    case CollectiveType::ReduceScatter:
    case CollectiveType::Scatter:
    case CollectiveType::Broadcast:
      return buffers.outputSize;
    case CollectiveType::AllToAll:
      return buffers.inputSize / static_cast<std::size_t>(ranks);
    case CollectiveType::SendReceive:
      return std::max(buffers.inputSize, buffers.outputSize);
    case CollectiveType::AllReduce:
    case CollectiveType::AllGather:
    case CollectiveType::Reduce:
    case CollectiveType::Gather:
    case CollectiveType::ReduceScatterV:
      break;
  }
  return buffers.inputSize;
}

CollectiveBufferMode bufferModeOf(std::string_view collective, const void* input, const void* output,
                                  std::size_t partSize, int rank) {
  const auto from = reinterpret_cast<std::uintptr_t>(input);
  const auto to = reinterpret_cast<std::uintptr_t>(output);
  const std::uintptr_t part = static_cast<std::size_t>(rank) * partSize;
  const auto type = collectiveNamed(collective);
  const bool isGathered = type == CollectiveType::AllGather || type == CollectiveType::Gather;
  const bool isScattered = type == CollectiveType::ReduceScatter || type == CollectiveType::Scatter;
  const bool isInPlace = from == to || (isGathered && from == to + part) || (isScattered && to == from + part);
  return isInPlace ? CollectiveBufferMode::InPlace : CollectiveBufferMode::OutOfPlace;
}

void requireAccepted(const mscclpp::Algorithm& algorithm, const std::shared_ptr<Communicator>& communicator,
                     const Buffers& buffers) {
  if (communicator == nullptr) throwInvalid("the communicator is null");
  const auto bootstrap = communicator->bootstrap();
  const int ranks = bootstrap->getNranks();
  const mscclpp::Algorithm::Constraint constraint = algorithm.constraint();
  const auto require = [](int wanted, int got, const char* what) {
    if (wanted == 0 || wanted == got) return;
    throw UnavailableAlgorithm("the algorithm is for " + std::to_string(wanted) + " " + what + ", but there are " +
                               std::to_string(got) + ": select another one");
  };
  require(constraint.worldSize, ranks, "ranks");
  if (constraint.nRanksPerNode != 0) require(constraint.nRanksPerNode, bootstrap->getNranksPerNode(), "ranks per host");

  const std::size_t bytes = messageSizeOf(algorithm.collective(), buffers, ranks);
  const auto& [shortest, longest] = algorithm.messageRange();
  if (bytes < shortest || bytes > longest) {
    throwInvalid("the algorithm is for messages of " + std::to_string(shortest) + " to " + std::to_string(longest) +
                 " bytes, not " + std::to_string(bytes) + ": select another one");
  }
  if (algorithm.bufferMode() == CollectiveBufferMode::Any || bytes == 0) return;
  if (buffers.input == nullptr || buffers.output == nullptr) return;  // the rank has one of them only
  const CollectiveBufferMode mode =
      bufferModeOf(algorithm.collective(), buffers.input, buffers.output, bytes, bootstrap->getRank());
  if (mode != algorithm.bufferMode()) {
    throwInvalid(mode == CollectiveBufferMode::InPlace ? "the algorithm does not support calls in place"
                                                       : "the algorithm supports calls in place only");
  }
}

CollectiveCall callOf(CollectiveType collective, const Buffers& buffers, DataType dtype, ReduceOp op,
                      CUstream_st* stream, const std::unordered_map<std::string, std::uintptr_t>& extras,
                      DataType accumDtype, int rank, int ranks) {
  CollectiveCall call{.collective = collective,
                      .input = buffers.input,
                      .output = buffers.output,
                      .type = dtype,
                      .reduction = op,
                      .stream = stream};
  const std::size_t element = sizeOf(dtype);
  if (element == 0) throwInvalid(std::string("data type ") + nameOf(dtype) + " is not supported");
  if (hasRoot(collective)) call.root = rankIn(extras, "root", 0);
  requireSizes(collective, buffers, rank == call.root, ranks);

  std::size_t bytes = messageSizeOf(algorithmApiNameOf(collective), buffers, ranks);
  std::size_t received = 0;
  if (collective == CollectiveType::SendReceive) {
    call.destination = rankIn(extras, "destination", -1);
    call.origin = rankIn(extras, "origin", -1);
    const auto found = extras.find("receivedSize");
    received = found == extras.end() ? buffers.outputSize : static_cast<std::size_t>(found->second);
    if (received > buffers.outputSize) {
      throwInvalid("extras[\"receivedSize\"] is " + std::to_string(received) + " bytes, more than outputSize, " +
                   std::to_string(buffers.outputSize));
    }
    bytes = call.destination < 0 ? 0 : buffers.inputSize;
    if (call.origin < 0) received = 0;
  }
  const std::size_t unit = collective == CollectiveType::AllToAll ? element * static_cast<std::size_t>(ranks) : element;
  const std::size_t whole = collective == CollectiveType::AllToAll ? buffers.inputSize : bytes;
  if (whole % unit != 0 || received % element != 0) {
    throwInvalid("inputSize is " + std::to_string(buffers.inputSize) + " and outputSize " +
                 std::to_string(buffers.outputSize) + " bytes; messages are whole elements of " + nameOf(dtype) +
                 (unit == element ? "" : ", one part for each rank") + ": multiples of " + std::to_string(unit) +
                 " bytes");
  }
  call.count = bytes / element;
  call.receivedCount = received / element;

  if (hasReduction(collective)) {
    requireAccumulator(dtype, accumDtype);
    if (const auto found = extras.find("factor"); found != extras.end() && found->second != 0) {
      call.reduction.factor = reinterpret_cast<const void*>(found->second);
    }
  }
  return call;
}

}  // namespace mscclpp::kernels
