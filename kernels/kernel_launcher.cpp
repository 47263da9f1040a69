#include "kernel_launcher.hpp"

#include <algorithm>
#include <cstdint>

#include "call_arguments.hpp"
#include "tuning.hpp"

namespace mscclpp::kernels {

static_assert(static_cast<std::size_t>(TraceId::Algorithm) + algorithmTable.size() <
              static_cast<std::size_t>(TraceId::FirstUser));

TraceId KernelLauncher::traceIdOf(std::size_t algorithm) {
  return static_cast<TraceId>(static_cast<std::size_t>(TraceId::Algorithm) + algorithm);
}

BoundedWait KernelLauncher::wait() const {
  return BoundedWait(monitor_->deviceControl(), static_cast<std::uint64_t>(monitor_->timeout().count()));
}

void KernelLauncher::run(const CollectiveCall& call, std::size_t index, const Window<>& outputs,
                         std::span<const CollectiveCall> joined) const {
  const Algorithm& algorithm = algorithmTable[index];
  const Region& region = *regions_.find(index);
  const std::size_t bytes = bytesOf(call);
  const KernelFunction traced = trace_ && joined.empty() ? backend_.findTraced(index, call.type, ranks_) : nullptr;
  const KernelFunction function = !joined.empty()     ? backend_.findJoined(index, call.type, ranks_)
                                  : traced != nullptr ? traced
                                                      : backend_.find(index, call.type, ranks_);
  const std::size_t elementBytes = hasReduction(call.collective) ? 1 : sizeOf(call.type);
  enqueue(nameOf(call.collective), index, bytes, call.stream, [&] {
    return function({.rank = rank_,
                     .ranks = ranks_,
                     .window = region.window.data(),
                     .epochs = static_cast<std::uint64_t*>(region.epochs.get()),
                     .capacity = region.capacity,
                     .pipeline = region.pipeline,
                     .wait = wait(),
                     .input = call.input,
                     .output = call.output,
                     .outputs = outputs.base,
                     .count = longestCountOf(call) * elementBytes,
                     .reduction = call.reduction,
                     .root = call.root,
                     .destination = call.destination,
                     .origin = call.origin,
                     .receivedCount = call.receivedCount * elementBytes,
                     .counts = call.counts.data(),
                     .offsets = call.offsets.data(),
                     .shape = shapeOf(call, algorithm, region, bytes),
                     .stream = call.stream,
                     .trace = trace_ ? trace_->buffer() : TraceBuffer{},
                     .joined = joined,
                     .start = start()});
  });
}

void KernelLauncher::exchange(const MessageList& list, CUstream_st* stream, const MessageList* joined) const {
  ExchangeCall call{.rank = rank_,
                    .ranks = ranks_,
                    .window = regions_.window().data(),
                    .places = {},
                    .wait = wait(),
                    .list = list,
                    .joined = joined,
                    .shape = shapeOf(list),
                    .stream = stream,
                    .start = start()};
  for (std::size_t i = 0; i < messageAlgorithms; ++i) {
    const Region* const region = regions_.find(firstMessageAlgorithm + i);
    if (region != nullptr) call.places[i] = {region->offset, region->capacity, region->pipeline};
  }
  std::size_t bytes = 0;
  for (int m = 0; m < list.count; ++m) bytes += list.messages[static_cast<std::size_t>(m)].bytes;
  enqueue("exchange", fallbackOf(CollectiveType::SendReceive), bytes, stream, [&] { return backend_.exchange(call); });
}

LaunchShape KernelLauncher::shapeOf(const CollectiveCall& call, const Algorithm& algorithm, const Region& region,
                                    std::size_t bytes) const {
  if (!takesAnySize(algorithm.protocol)) {
    return packetShape(algorithm, ceilDivide(bytes, sizeof(Word128)), ranks_, maxBlocks_);
  }
  const int threads = gpuPipeline(algorithm, ranks_, maxBlocks_).threads;
  if (call.collective != CollectiveType::SendReceive) return {region.pipeline.blocks, threads};
  const int parts = call.destination >= 0 && call.origin >= 0 && call.origin != rank_ ? 2 : 1;
  return {parts * messageBlocks(algorithm, region.pipeline, bytes, ranks_, std::max(maxBlocks_ / parts, 1)), threads};
}

LaunchShape KernelLauncher::shapeOf(const MessageList& list) const {
  const int most = std::max(maxBlocks_ / list.pairCount, 1);
  LaunchShape shape{1, 0};
  for (int m = 0; m < list.count; ++m) {
    const MessageList::Message& message = list.messages[static_cast<std::size_t>(m)];
    const Algorithm& algorithm = algorithmTable[message.algorithm];
    const PipelineShape& rings = regions_.find(message.algorithm)->pipeline;
    shape.blocks = std::max(shape.blocks, messageBlocks(algorithm, rings, message.bytes, ranks_, most));
    const int threads = isPipelined(algorithm.protocol)
                            ? gpuPipeline(algorithm, ranks_, maxBlocks_).threads
                            : packetShape(algorithm, ceilDivide(message.bytes, sizeof(Word128)), ranks_, most).threads;
    shape.threads = std::max(shape.threads, threads);
  }
  shape.blocks *= list.pairCount;
  return shape;
}

}  // namespace mscclpp::kernels
