#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "host/memory/device_memory.hpp"
#include "kernels/moe/calls.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/kernels/moe_buffer.hpp"

namespace mscclpp::moe {

namespace {

[[noreturn]] void throwInvalidUsage(const std::string& why) {
  throw Error("moe::Buffer: " + why, ErrorCode::InvalidUsage);
}
void require(bool condition, const std::string& otherwise) {
  if (!condition) throwInvalidUsage(otherwise);
}
void requireArray(const void* array, const char* name) {
  require(array != nullptr, std::string(name) + " is null");
}
void requireRows(const void* rows, const char* name) {
  requireArray(rows, name);
  require(reinterpret_cast<std::uintptr_t>(rows) % 16 == 0, std::string(name) + " is not at a multiple of 16 bytes");
}

/// Takes parts of an allocation, one after the other.
class Parts {
 public:
  template <class T>
  std::size_t add(std::size_t count) {
    const std::size_t at = bytes_;
    bytes_ += roundUp(count * sizeof(T), 128);
    return at;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};
template <class T>
T* at(void* memory, std::size_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(memory) + offset);
}

}  // namespace

class Buffer::State {
 public:
  State(Communicator& communicator, DeviceType where, const BufferConfig& config, std::shared_ptr<WaitMonitor> monitor)
      : config_(valid(config, communicator.bootstrap()->getNranks(), where)),
        where_(where),
        team_(communicator.bootstrap()->getRank(), communicator.bootstrap()->getNranks()),
        monitor_(std::move(monitor)) {
    if (monitor_ == nullptr) {
      monitor_ = std::make_shared<WaitMonitor>(communicator, where);
      monitor_->setTeamIsJob();
    }
    const int sms = where == DeviceType::GPU ? kernels::gpu::multiprocessors() : 1;
    blocks_ = std::min(config.blocks > 0 ? config.blocks : sms, sms);
    lowLatencyBlocks_ = std::min(config.lowLatencyBlocks > 0 ? config.lowLatencyBlocks : 64, sms);
    if (config.maxTokens > 0) makeForm<StoreTransport>(communicator, dimensions(false), bandwidth_);
    if (config.maxLowLatencyTokens > 0) makeForm<kernels::LowLatencyRows>(communicator, dimensions(true), lowLatency_);

    const Dimensions longest = dimensions(config.maxTokens < config.maxLowLatencyTokens);
    Parts parts;
    const auto experts = static_cast<std::size_t>(config.experts);
    const std::size_t tokensPerExpert = parts.add<std::uint32_t>(experts);
    const std::size_t tokensPerRank = parts.add<std::uint32_t>(static_cast<std::size_t>(ranks()));
    const std::size_t expertIndex =
        parts.add<std::int32_t>(std::size_t{longest.maxTokens} * static_cast<std::size_t>(config.topk));
    const std::size_t segmentCounts =
        parts.add<std::uint32_t>(maxSegments * (experts + static_cast<std::size_t>(ranks())));
    const std::size_t barrier = parts.add<GridBarrier>(1);
    const int tables = std::max(blocks_, lowLatencyBlocks_);
    const std::size_t table =
        parts.add<std::uint32_t>(DispatchWorkspace::tableWords(longest) * static_cast<std::size_t>(tables));
    memory_ = detail::allocatePrivateMemory(where, parts.bytes());
    workspace_ = {
        {at<std::uint32_t>(memory_.get(), tokensPerExpert), at<std::uint32_t>(memory_.get(), tokensPerRank), nullptr,
         at<std::int32_t>(memory_.get(), expertIndex), at<std::uint32_t>(memory_.get(), segmentCounts)},
        at<GridBarrier>(memory_.get(), barrier),
        at<std::uint32_t>(memory_.get(), table),
        tables};
  }

  const BufferConfig& config() const { return config_; }
  int rank() const { return team_.rank(); }
  int ranks() const { return team_.size(); }
  bool isQuantised() const { return config_.format != RowFormat::Bf16; }
  std::uint32_t dispatchPacks() const { return config_.hidden / (isQuantised() ? 16 : 8); }
  std::uint32_t scaleGroups() const {
    return isQuantised() ? (dispatchPacks() + groupPacks - 1) / static_cast<std::uint32_t>(groupPacks) : 0;
  }
  std::uint32_t stride() const { return static_cast<std::uint32_t>(ranks()) * config_.maxLowLatencyTokens; }
  Dimensions dimensions(bool isLowLatency) const {
    return {isLowLatency ? config_.maxLowLatencyTokens : config_.maxTokens, config_.topk, config_.experts, ranks()};
  }
  void check() const { monitor_->check(); }

  /// The view of a handle in this memory; null: only its size is of interest.
  Handle handleIn(void* memory, std::size_t& bytes) const {
    const std::size_t tokens = std::max(config_.maxTokens, config_.maxLowLatencyTokens);
    const auto size = static_cast<std::size_t>(ranks());
    const std::size_t entries = size * tokens * static_cast<std::size_t>(config_.topk);
    Parts parts;
    const std::size_t rankIndex = parts.add<std::int32_t>(tokens * size);
    const std::size_t received = parts.add<std::uint32_t>(size);
    const std::size_t positions = parts.add<std::int32_t>(entries);
    const std::size_t weights = parts.add<float>(entries);
    bytes = parts.bytes();
    if (memory == nullptr) return {};
    return {at<std::int32_t>(memory, rankIndex), at<std::uint32_t>(memory, received),
            at<std::int32_t>(memory, positions), at<float>(memory, weights)};
  }
  std::shared_ptr<void> allocate(std::size_t bytes) const { return detail::allocatePrivateMemory(where_, bytes); }

  void layOut(const Tokens& tokens, const TokenLayout& layout, CUstream_st* stream) {
    if (tokens.tokens > 0) requireArray(tokens.experts, "Tokens::experts");
    requireArray(layout.tokensPerRank, "TokenLayout::tokensPerRank");
    requireArray(layout.tokensPerExpert, "TokenLayout::tokensPerExpert");
    if (tokens.tokens > 0) {
      requireArray(layout.rankIndex, "TokenLayout::rankIndex");
      requireArray(layout.expertIndex, "TokenLayout::expertIndex");
    }
    enqueue(kernels::MoeLayoutCall{{tokens.experts, tokens.weights, tokens.tokens},
                                   dimensions(false),
                                   {layout.tokensPerExpert, layout.tokensPerRank, layout.rankIndex, layout.expertIndex,
                                    workspace_.layout.segmentCounts},
                                   workspace_.barrier,
                                   {monitor_->deviceControl(), static_cast<std::uint64_t>(monitor_->timeout().count())},
                                   blocks_,
                                   stream});
  }

  void dispatch(const Tokens& tokens, const ExpertBatch& batch, const Handle& handle, CUstream_st* stream, Phase phase,
                bool isLowLatency) {
    check();
    kernels::MoeDispatchCall call{};
    fill(call, isLowLatency, handle, tokens.tokens, dispatchPacks(), stream, phase);
    if (tokens.tokens > 0) {
      requireRows(tokens.rows, "Tokens::rows");
      requireArray(tokens.experts, "Tokens::experts");
      if (config_.format == RowFormat::Fp8) requireArray(tokens.scales, "Tokens::scales");
    }
    requireRows(batch.rows, "ExpertBatch::rows");
    requireArray(batch.counts, "ExpertBatch::counts");
    requireArray(batch.offsets, "ExpertBatch::offsets");
    if (isQuantised()) requireArray(batch.scales, "ExpertBatch::scales");
    call.window = formOf(isLowLatency).dispatch->scratch().window();
    call.epochs = {formOf(isLowLatency).dispatch->epochs()};
    call.format = config_.format;
    call.input = tokens;
    call.output = {static_cast<std::byte*>(batch.rows), dispatchPacks(), batch.scales, scaleGroups()};
    call.placement = {
        batch.capacity, isLowLatency ? 1 : config_.alignment, isLowLatency ? stride() : 0, batch.counts, batch.offsets,
        batch.origins};
    require(call.placement.isValid(call.dimensions), "ExpertBatch::capacity is " + std::to_string(batch.capacity) +
                                                         "; low-latency calls need lowLatencyCapacity() rows");
    call.workspace = workspace_;
    call.workspace.layout.rankIndex = handle.rankIndex;
    enqueue(call);
  }

  void combine(const void* results, void* output, const Handle& handle, std::uint32_t tokens, CUstream_st* stream,
               Phase phase, bool isLowLatency) {
    check();
    kernels::MoeCombineCall call{};
    fill(call, isLowLatency, handle, tokens, config_.hidden / 8, stream, phase);
    requireRows(results, "results");
    if (tokens > 0) requireRows(output, "output");
    const Form& form = formOf(isLowLatency);
    call.window = form.combine->scratch().window();
    call.epochs = {form.combine->epochs()};
    call.dispatches = {form.dispatch->epochs()};
    call.results = results;
    call.output = output;
    enqueue(call);
  }

 private:
  /// The scratch of a form, on all ranks.
  struct Form {
    std::unique_ptr<detail::CollectiveMemory> dispatch, combine;
  };

  static const BufferConfig& valid(const BufferConfig& config, int ranks, DeviceType where) {
    require(where == DeviceType::CPU || where == DeviceType::GPU, "the device type must be CPU or GPU");
    require(config.maxTokens > 0 || config.maxLowLatencyTokens > 0,
            "maxTokens and maxLowLatencyTokens are 0: give the most tokens of a call of either form");
    require(config.maxTokens <= 65535 && config.maxLowLatencyTokens <= 65535, "a call has at most 65535 tokens");
    require(config.topk >= 1 && config.topk <= maxTopk,
            "topk is " + std::to_string(config.topk) + "; a token has 1 to " + std::to_string(maxTopk) + " experts");
    require(config.experts > 0 && config.experts % ranks == 0, "experts is " + std::to_string(config.experts) +
                                                                   "; it must be a multiple of the " +
                                                                   std::to_string(ranks) + " ranks");
    require(config.hidden > 0 && config.hidden % 16 == 0,
            "hidden is " + std::to_string(config.hidden) + "; it must be a multiple of 16");
    require(config.experts / ranks <= 65535, "a rank has at most 65535 experts");
    require(config.alignment > 0 && config.alignment <= 65536, "alignment is 1 (none) to 65536 rows");
    require(config.blocks >= 0 && config.lowLatencyBlocks >= 0, "the number of blocks is negative");
    return config;
  }

  template <class Transport>
  void makeForm(Communicator& communicator, const Dimensions& dimensions, Form& form) {
    using DispatchOf = Dispatch<Transport, 0, std::int64_t>;
    using CombineOf = Combine<bf16, Transport>;
    form.dispatch = makeMemory<DispatchOf>(communicator, dimensions,
                                           DispatchOf::scratchFor(dimensions, dispatchPacks(), isQuantised()));
    form.combine =
        makeMemory<CombineOf>(communicator, dimensions, CombineOf::scratchFor(dimensions, config_.hidden / 8));
  }
  template <class Collective, class Scratch>
  std::unique_ptr<detail::CollectiveMemory> makeMemory(Communicator& communicator, const Dimensions& dimensions,
                                                       const Scratch& scratch) const {
    require(scratch.isValid(), "maxTokens * hidden is too large");
    const detail::CollectiveStateRequest request{where_,
                                                 detail::typeNumber<Collective>(),
                                                 dimensions.maxTokens,
                                                 PipelineShape{},
                                                 scratch.windowBytes(),
                                                 Scratch::initialByte,
                                                 Scratch::firstEpoch,
                                                 0,
                                                 true};
    return std::make_unique<detail::CollectiveMemory>(communicator, request, monitor_);
  }
  const Form& formOf(bool isLowLatency) const { return isLowLatency ? lowLatency_ : bandwidth_; }

  void fill(kernels::MoeCall& call, bool isLowLatency, const Handle& handle, std::uint32_t tokens, std::uint32_t packs,
            CUstream_st* stream, Phase phase) const {
    const Dimensions sizes = dimensions(isLowLatency);
    require(sizes.maxTokens > 0, isLowLatency ? "maxLowLatencyTokens is 0: there is no low-latency form"
                                              : "maxTokens is 0: there are low-latency calls only");
    require(tokens <= sizes.maxTokens, std::to_string(tokens) + " tokens, but the buffer is for " +
                                           std::to_string(sizes.maxTokens) + " in a call");
    require(handle.rankIndex != nullptr, "the handle is empty: get one from makeHandle()");
    call.team = team_;
    call.wait = {monitor_->deviceControl(), static_cast<std::uint64_t>(monitor_->timeout().count())};
    call.dimensions = sizes;
    call.handle = handle;
    call.tokens = tokens;
    call.rowPacks = packs;
    call.phase = phase;
    call.isLowLatency = isLowLatency;
    call.blocks = isLowLatency ? lowLatencyBlocks_ : blocks_;
    call.stream = stream;
  }
  template <class Call>
  void enqueue(const Call& call) const {
    const int error = where_ == DeviceType::GPU ? kernels::gpu::run(call) : kernels::cpu::run(call);
    if (error != 0) {
      throw CudaError("moe::Buffer: launch of a kernel", error);
    }
    if (where_ == DeviceType::CPU) check();
  }

  const BufferConfig config_;
  const DeviceType where_;
  const Team<> team_;
  std::shared_ptr<WaitMonitor> monitor_;
  int blocks_ = 1;
  int lowLatencyBlocks_ = 1;
  Form bandwidth_, lowLatency_;
  std::shared_ptr<void> memory_;
  DispatchWorkspace workspace_{};
};

Buffer::Buffer(Communicator& communicator, DeviceType where, const BufferConfig& config,
               std::shared_ptr<WaitMonitor> monitor)
    : state_(std::make_unique<State>(communicator, where, config, std::move(monitor))) {}
Buffer::~Buffer() = default;

const BufferConfig& Buffer::config() const noexcept {
  return state_->config();
}
int Buffer::rank() const noexcept {
  return state_->rank();
}
int Buffer::ranks() const noexcept {
  return state_->ranks();
}
std::uint32_t Buffer::scaleGroups() const noexcept {
  return state_->scaleGroups();
}
std::uint32_t Buffer::largestCapacity() const noexcept {
  return static_cast<std::uint32_t>(
      ExpertPlacement::largestCapacity(state_->dimensions(false), state_->config().alignment));
}
std::uint32_t Buffer::lowLatencyCapacity() const noexcept {
  return state_->stride() * static_cast<std::uint32_t>(state_->dimensions(true).expertsPerRank());
}
DispatchHandle Buffer::makeHandle() const {
  std::shared_ptr<void> memory = state_->allocate(handleBytes());
  DispatchHandle handle = makeHandle(memory.get());
  handle.memory_ = std::move(memory);
  return handle;
}
DispatchHandle Buffer::makeHandle(void* memory, std::uint32_t tokens) const {
  DispatchHandle handle;
  std::size_t bytes = 0;
  handle.view_ = state_->handleIn(memory, bytes);
  handle.tokens_ = tokens;
  return handle;
}
std::size_t Buffer::handleBytes() const noexcept {
  std::size_t bytes = 0;
  state_->handleIn(nullptr, bytes);
  return bytes;
}
void Buffer::getDispatchLayout(const Tokens& tokens, const TokenLayout& layout, CUstream_st* stream) {
  state_->layOut(tokens, layout, stream);
}
void Buffer::dispatch(const Tokens& tokens, const ExpertBatch& batch, DispatchHandle& handle, CUstream_st* stream,
                      Phase phase) {
  handle.tokens_ = tokens.tokens;
  state_->dispatch(tokens, batch, handle.view_, stream, phase, false);
}
void Buffer::combine(const void* results, void* output, const DispatchHandle& handle, CUstream_st* stream,
                     Phase phase) {
  state_->combine(results, output, handle.view_, handle.tokens_, stream, phase, false);
}
ReceiveHook Buffer::lowLatencyDispatch(const Tokens& tokens, const ExpertBatch& batch, DispatchHandle& handle,
                                       CUstream_st* stream, bool returnsHook) {
  handle.tokens_ = tokens.tokens;
  const Handle view = handle.view_;
  state_->dispatch(tokens, batch, view, stream, returnsHook ? Phase::Send : Phase::Both, true);
  if (!returnsHook) return {};
  return [=, state = state_.get()] { state->dispatch(tokens, batch, view, stream, Phase::Receive, true); };
}
ReceiveHook Buffer::lowLatencyCombine(const void* results, void* output, const DispatchHandle& handle,
                                      CUstream_st* stream, bool returnsHook) {
  const Handle view = handle.view_;
  const std::uint32_t tokens = handle.tokens_;
  state_->combine(results, output, view, tokens, stream, returnsHook ? Phase::Send : Phase::Both, true);
  if (!returnsHook) return {};
  return [=, state = state_.get()] { state->combine(results, output, view, tokens, stream, Phase::Receive, true); };
}
void Buffer::check() const {
  state_->check();
}

}  // namespace mscclpp::moe
