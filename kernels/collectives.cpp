// The compiled collectives, as users call them.
#include "mscclpp/kernels/collectives.hpp"

#include <memory>
#include <string>
#include <utility>

#include "algorithms.hpp"
#include "collectives_state.hpp"
#include "messages_by_rank.hpp"
#include "mscclpp/host/base/error.hpp"
#include "tuning.hpp"

namespace mscclpp {

using namespace kernels;

Collectives::Collectives(std::shared_ptr<Communicator> communicator, DeviceType deviceType, Algorithms algorithms,
                         int maxBlocks) {
  if (communicator == nullptr) throw Error("Collectives: the communicator is null", ErrorCode::InvalidUsage);
  if (deviceType != DeviceType::GPU && deviceType != DeviceType::CPU) {
    throw Error("Collectives: deviceType must be DeviceType::GPU or DeviceType::CPU", ErrorCode::InvalidUsage);
  }
  if (maxBlocks < 0 || maxBlocks > mostBlocks) {
    throw Error("Collectives: maxBlocks is " + std::to_string(maxBlocks) + "; it is 1 to " +
                    std::to_string(mostBlocks) + ", or 0 for as many as are fastest",
                ErrorCode::InvalidUsage);
  }
  state_ = std::make_unique<State>(std::move(communicator), deviceType, algorithms, maxBlocks);
}
Collectives::~Collectives() = default;

RegisteredBuffers::Handle Collectives::registerBuffer(void* data, std::size_t bytes) {
  return state_->registerBuffer(data, bytes);
}

void Collectives::run(const CollectiveCall& call) {
  state_->run(call);
}
void Collectives::run(std::span<const CollectiveCall> calls) {
  state_->run(calls);
}

void Collectives::allReduce(const void* input, void* output, std::size_t count, DataType type,
                            const Reduction& reduction, CUstream_st* stream, const std::string& algorithm) {
  run({.collective = CollectiveType::AllReduce,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .reduction = reduction,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::reduceScatter(const void* input, void* output, std::size_t count, DataType type,
                                const Reduction& reduction, CUstream_st* stream, const std::string& algorithm) {
  run({.collective = CollectiveType::ReduceScatter,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .reduction = reduction,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::reduce(const void* input, void* output, std::size_t count, DataType type, const Reduction& reduction,
                         int root, CUstream_st* stream, const std::string& algorithm) {
  run({.collective = CollectiveType::Reduce,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .reduction = reduction,
       .root = root,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::allGather(const void* input, void* output, std::size_t count, DataType type, CUstream_st* stream,
                            const std::string& algorithm) {
  run({.collective = CollectiveType::AllGather,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::allToAll(const void* input, void* output, std::size_t count, DataType type, CUstream_st* stream,
                           const std::string& algorithm) {
  run({.collective = CollectiveType::AllToAll,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::broadcast(const void* input, void* output, std::size_t count, DataType type, int root,
                            CUstream_st* stream, const std::string& algorithm) {
  run({.collective = CollectiveType::Broadcast,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .root = root,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::gather(const void* input, void* output, std::size_t count, DataType type, int root,
                         CUstream_st* stream, const std::string& algorithm) {
  run({.collective = CollectiveType::Gather,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .root = root,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::scatter(const void* input, void* output, std::size_t count, DataType type, int root,
                          CUstream_st* stream, const std::string& algorithm) {
  run({.collective = CollectiveType::Scatter,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .root = root,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::sendReceive(const void* input, std::size_t count, int destination, void* output,
                              std::size_t receivedCount, int origin, DataType type, CUstream_st* stream,
                              const std::string& algorithm) {
  run({.collective = CollectiveType::SendReceive,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .destination = destination,
       .origin = origin,
       .receivedCount = receivedCount,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::allGatherV(const void* input, void* output, std::span<const std::size_t> counts,
                             std::span<const std::size_t> offsets, DataType type, CUstream_st* stream) {
  const auto messages = messagesOfAllGatherV(rank(), ranks(), input, output, {counts, offsets}, type);
  exchange(messages.sent(), messages.received(), stream);
}

void Collectives::allToAllV(const void* input, std::span<const std::size_t> sendCounts,
                            std::span<const std::size_t> sendOffsets, void* output,
                            std::span<const std::size_t> receiveCounts, std::span<const std::size_t> receiveOffsets,
                            DataType type, CUstream_st* stream) {
  const auto messages = messagesOfAllToAllV(rank(), ranks(), input, {sendCounts, sendOffsets}, output,
                                            {receiveCounts, receiveOffsets}, type);
  exchange(messages.sent(), messages.received(), stream);
}

void Collectives::reduceScatterV(const void* input, void* output, std::span<const std::size_t> counts,
                                 std::span<const std::size_t> offsets, DataType type, const Reduction& reduction,
                                 CUstream_st* stream, const std::string& algorithm) {
  run({.collective = CollectiveType::ReduceScatterV,
       .input = input,
       .output = output,
       .type = type,
       .reduction = reduction,
       .counts = counts,
       .offsets = offsets,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::exchange(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives,
                           CUstream_st* stream) {
  state_->exchange(sends, receives, stream);
}

void Collectives::allReduceRmsNorm(const RmsNormCall& call) {
  state_->allReduceRmsNorm(call);
}

void Collectives::allReduceFp8(const void* input, void* output, std::size_t count, DataType type, CUstream_st* stream) {
  state_->allReduceFp8({input, output, count, stream}, type);
}

void Collectives::check() const {
  state_->check();
}

std::size_t Collectives::memoryBytes() const {
  return state_->memoryBytes();
}

int Collectives::rank() const {
  return state_->rank();
}

int Collectives::ranks() const {
  return state_->ranks();
}

DeviceType Collectives::deviceType() const noexcept {
  return state_->deviceType();
}

bool Collectives::isConcurrent() const {
  return state_->isConcurrent();
}

std::vector<std::string> Collectives::algorithms(CollectiveType collective) const {
  return state_->algorithmsOf(collective);
}

std::string Collectives::selectedAlgorithm(const CollectiveCall& call) const {
  return algorithmTable[state_->select(call)].name;
}

bool Collectives::supports(const CollectiveCall& call) const {
  return state_->supports(call);
}

bool Collectives::takesRegisteredOutput(const CollectiveCall& call) const {
  return state_->takesRegisteredOutput(call);
}

std::shared_ptr<Trace> Collectives::makeTrace(TraceOptions options) const {
  return state_->makeTrace(std::move(options));
}

void Collectives::record(std::shared_ptr<Trace> trace) {
  state_->record(std::move(trace));
}

bool Collectives::recordsStages(const CollectiveCall& call) const {
  return state_->recordsStages(call);
}

void Collectives::setEpoch(std::uint64_t epoch) {
  state_->setEpoch(epoch);
}

}  // namespace mscclpp
