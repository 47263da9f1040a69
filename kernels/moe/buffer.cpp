#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/bootstrap/group_agreement.hpp"
#include "host/memory/device_memory.hpp"
#include "kernels/gpu_budget.hpp"
#include "kernels/moe/buffer_memory.hpp"
#include "kernels/moe/calls.hpp"
#include "kernels/moe/config_agreement.hpp"
#include "kernels/moe/require.hpp"
#include "kernels/moe/split_calls.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/kernels/moe_buffer.hpp"

namespace mscclpp::moe {

using namespace detail;

namespace {

void requireAligned(const void* array, std::size_t alignment, const char* name) {
  require(reinterpret_cast<std::uintptr_t>(array) % alignment == 0,
          std::string(name) + " is not at a multiple of " + std::to_string(alignment) + " bytes");
}
template <class T>
void requireArray(const T* array, const char* name) {
  require(array != nullptr, std::string(name) + " is null");
  requireAligned(array, alignof(T), name);
}
void requireRows(const void* rows, const char* name) {
  require(rows != nullptr, std::string(name) + " is null");
  requireAligned(rows, 16, name);
}

/// A call gets faster with every block up to about so many: docs/performance.md.
constexpr int defaultLowLatencyBlocks = 128;

/// The fewest tokens of which a dispatch sends rows while it lays out the routing: measured (docs/performance.md).
constexpr std::uint32_t leastEarlyTokens = 512;

/// The blocks of a combine that only send, where they are not given: measured (docs/performance.md).
int combineSenders(int blocks) {
  return blocks * 5 / 11;
}

const char* nameOf(Form form) {
  return form == Form::LowLatency ? "low-latency" : "bandwidth";
}

}  // namespace

struct DispatchHandle::Record {
  Handle view;
  std::weak_ptr<const Buffer::State> buffer;
  std::shared_ptr<void> memory;  ///< null: the caller's
  Form form;
  std::uint32_t tokens;
  bool isComplete;  ///< a dispatch with this handle has been received
};

class Buffer::State {
 public:
  using Record = DispatchHandle::Record;

  State(Communicator& communicator, DeviceType where, const BufferConfig& config, std::shared_ptr<WaitMonitor> monitor)
      : config_(agreed(communicator, config, where)),
        where_(where),
        team_(communicator.bootstrap()->getRank(), communicator.bootstrap()->getNranks()),
        monitor_(std::move(monitor)) {
    const mscclpp::detail::GroupAgreement agreement(*communicator.bootstrap(), errorPrefix);
    // What fails on one rank only, such as an allocation, is an error on all of them.
    const auto onAllRanks = [&](const char* step, const auto& body) {
      agreement.runStep(step, [&] {
        body();
        return std::vector<char>();
      });
    };
    std::shared_ptr<kernels::GpuBudget> budget;
    onAllRanks("prepare its calls", [&] {
      monitor_ = WaitMonitor::ofTeam(communicator, where, std::move(monitor_));
      if (where != DeviceType::GPU) return;
      budget = kernels::gpu::currentBudget();
      queryGpu();
    });
    if (where == DeviceType::GPU) {
      share_ = kernels::reserveOnAllRanks(
          *communicator.bootstrap(), budget,
          std::max(config.maxTokens > 0 ? blocks_ : 0, config.maxLowLatencyTokens > 0 ? lowLatencyBlocks_ : 0),
          errorPrefix);
      blocks_ = std::min(blocks_, share_->blocks());
      lowLatencyBlocks_ = std::min(lowLatencyBlocks_, share_->blocks());
    }
    if (config.maxTokens > 0) makeForm<StoreTransport>(communicator, Form::Bandwidth);
    if (config.maxLowLatencyTokens > 0) makeForm<kernels::LowLatencyRows>(communicator, Form::LowLatency);
    onAllRanks("allocate its workspace", [&] { allocateWorkspace(); });
  }

  const BufferConfig& config() const { return config_; }
  int rank() const { return team_.rank(); }
  int ranks() const { return team_.size(); }
  bool isQuantised() const { return detail::isQuantised(config_); }
  std::uint32_t dispatchPacks() const { return detail::dispatchPacks(config_); }
  std::uint32_t scaleGroups() const {
    return isQuantised() ? (dispatchPacks() + groupPacks - 1) / static_cast<std::uint32_t>(groupPacks) : 0;
  }
  /// Whether so many rows of a dispatch push each other out of the L2 cache. Of CPU ranks, which take no hints: true.
  bool isMoreThanCache(std::size_t rows) const { return rows * dispatchPacks() * sizeof(Word128) > cacheBytes_ / 2; }
  std::uint32_t stride() const { return lowLatencyStride(config_, ranks()); }
  Dimensions dimensions(Form form) const { return dimensionsOf(config_, ranks(), form); }
  std::size_t scratchBytes() const { return scratchBytes_; }
  std::uint32_t largestCapacity() const {
    return static_cast<std::uint32_t>(ExpertPlacement::largestCapacity(dimensions(Form::Bandwidth), config_.alignment));
  }
  void check() const { monitor_->check(); }

  /// Handle::identity of the dispatches of a form.
  std::uint32_t identityOf(Form form) const { return 2 * number_ + static_cast<std::uint32_t>(form); }
  std::size_t handleBytes() const { return HandleParts(config_, ranks()).bytes; }
  /// The view of a handle in this memory.
  Handle handleIn(void* memory) const {
    const HandleParts parts(config_, ranks());
    return {at<std::int32_t>(memory, parts.rankIndex), at<std::uint32_t>(memory, parts.received),
            at<std::int32_t>(memory, parts.positions), at<float>(memory, parts.weights),
            at<std::uint64_t>(memory, parts.stamp),    0};
  }
  std::shared_ptr<void> allocate(std::size_t bytes) const {
    return mscclpp::detail::allocatePrivateMemory(where_, bytes);
  }

  void layOut(const Tokens& tokens, const TokenLayout& layout, CUstream_st* stream) {
    check();
    if (tokens.tokens > 0) requireArray(tokens.experts, "Tokens::experts");
    requireArray(layout.tokensPerRank, "TokenLayout::tokensPerRank");
    requireArray(layout.tokensPerExpert, "TokenLayout::tokensPerExpert");
    if (tokens.tokens > 0) {
      requireArray(layout.rankIndex, "TokenLayout::rankIndex");
      requireArray(layout.expertIndex, "TokenLayout::expertIndex");
    }
    kernels::MoeLayoutCall call{};
    call.routing = {tokens.experts, tokens.weights, tokens.tokens};
    call.dimensions = dimensions(Form::Bandwidth);
    call.layout = {layout.tokensPerExpert, layout.tokensPerRank, layout.rankIndex, layout.expertIndex,
                   workspace_.layout.segmentCounts};
    call.barrier = workspace_.barrier;
    call.blockMemory = workspace_.blockMemory;
    call.wait = wait();
    call.blocks = blocks_;
    call.stream = stream;
    enqueue(call);
  }

  /// Returns the number of the call, for its hook.
  std::uint64_t dispatch(const Tokens& tokens, const ExpertBatch& batch, const std::shared_ptr<Record>& handle,
                         CUstream_st* stream, Phase phase, Form form) {
    check();
    requireOwn(handle.get());
    kernels::MoeDispatchCall call{};
    fill(call, form, handle->view, tokens.tokens, dispatchPacks(), stream, phase);
    if (tokens.tokens > 0) {
      requireRows(tokens.rows, "Tokens::rows");
      requireArray(tokens.experts, "Tokens::experts");
      if (config_.format == RowFormat::Fp8) requireArray(tokens.scales, "Tokens::scales");
      requireAligned(tokens.weights, alignof(float), "Tokens::weights");
    }
    requireRows(batch.rows, "ExpertBatch::rows");
    requireArray(batch.counts, "ExpertBatch::counts");
    requireArray(batch.offsets, "ExpertBatch::offsets");
    if (isQuantised()) requireArray(batch.scales, "ExpertBatch::scales");
    requireAligned(batch.origins, alignof(RowOrigin), "ExpertBatch::origins");
    call.window = formOf(form).dispatch->scratch().window();
    call.epochs = {formOf(form).dispatch->epochs()};
    call.format = config_.format;
    call.copiesRows = copiesRows_;
    call.sendingBlocks = config_.sendingBlocks;
    call.input = tokens;
    call.output = {static_cast<std::byte*>(batch.rows), dispatchPacks(), batch.scales, scaleGroups(),
                   isMoreThanCache(std::size_t{tokens.tokens} * static_cast<std::size_t>(config_.topk))};
    call.sendsEarly = tokens.tokens >= leastEarlyTokens;
    call.streams = isMoreThanCache(2 * std::size_t{tokens.tokens});  // rows that are read, and those in slots
    const bool isLowLatency = form == Form::LowLatency;
    call.placement = {
        batch.capacity, isLowLatency ? 1 : config_.alignment, isLowLatency ? stride() : 0, batch.counts, batch.offsets,
        batch.origins};
    require(call.placement.isValid(call.dimensions), "ExpertBatch::capacity is " + std::to_string(batch.capacity) +
                                                         "; low-latency calls need lowLatencyCapacity() rows");
    call.workspace = workspace_;
    call.workspace.layout.rankIndex = handle->view.rankIndex;
    const CallArguments arguments{handle.get(), handle->view.rankIndex, DispatchArrays{tokens, batch}};
    calls_.requireNext(form, arguments, phase);
    enqueue(call);
    handle->form = form;
    handle->view.identity = identityOf(form);
    handle->tokens = tokens.tokens;
    handle->isComplete = phase != Phase::Send;
    return calls_.record(form, arguments, phase);
  }

  std::uint64_t combine(const void* results, void* output, const std::shared_ptr<Record>& handle, CUstream_st* stream,
                        Phase phase, Form form) {
    check();
    requireOwn(handle.get());
    const CallArguments arguments{handle.get(), handle->view.rankIndex, CombineArrays{results, output}};
    calls_.requireNext(form, arguments, phase);
    require(handle->isComplete, "no dispatch with this handle has been received: make one first, and call its hook");
    require(handle->form == form, std::string("the handle is of a dispatch of the ") + nameOf(handle->form) +
                                      " form: combine in the same form");
    kernels::MoeCombineCall call{};
    fill(call, form, handle->view, handle->tokens, config_.hidden / 8, stream, phase);
    requireRows(results, "results");
    if (handle->tokens > 0) requireRows(output, "output");
    call.window = formOf(form).combine->scratch().window();
    call.epochs = {formOf(form).combine->epochs()};
    call.dispatches = {formOf(form).dispatch->epochs()};
    const int senders = config_.combineSendingBlocks;
    call.sendingBlocks = senders >= 0 ? senders : combineSenders(call.blocks);
    call.results = results;
    call.output = output;
    enqueue(call);
    return calls_.record(form, arguments, phase);
  }

  /// SplitCalls::isSent().
  bool isSent(std::uint64_t number) const { return calls_.isSent(number); }

 private:
  /// The scratch of a form, on all ranks.
  struct FormMemory {
    std::unique_ptr<mscclpp::detail::CollectiveMemory> dispatch, combine;
  };

  void requireOwn(const Record* handle) const {
    require(handle != nullptr, "the handle is empty: get one from makeHandle()");
    require(handle->buffer.lock().get() == this, "the handle is of another buffer: use one of this buffer's");
  }

  static const BufferConfig& agreed(Communicator& communicator, const BufferConfig& config, DeviceType where) {
    requireSameConfig(communicator, config, where);
    return config;
  }

  /// What decides on the calls of this rank's GPU, and the blocks that are wanted.
  void queryGpu() {
    const int sms = kernels::gpu::multiprocessors();
    copiesRows_ = config_.bulkCopies && kernels::gpu::hasBulkCopies();
    cacheBytes_ = kernels::gpu::l2CacheBytes();
    blocks_ = std::min(config_.blocks > 0 ? config_.blocks : sms, sms);
    lowLatencyBlocks_ =
        std::min(config_.lowLatencyBlocks > 0 ? config_.lowLatencyBlocks : defaultLowLatencyBlocks, sms);
  }

  /// Once the numbers of blocks are known.
  void allocateWorkspace() {
    const WorkspaceParts parts(
        config_, ranks(),
        std::max({wordsOfBlocks(blocks_, routingLayoutWords(dimensions(Form::Bandwidth))),
                  wordsOfDispatch<StoreTransport>(Form::Bandwidth, blocks_),
                  wordsOfDispatch<kernels::LowLatencyRows>(Form::LowLatency, lowLatencyBlocks_)}));
    memory_ = allocate(parts.bytes);
    scratchBytes_ += parts.bytes;
    void* const memory = memory_.get();
    workspace_ = {
        {at<std::uint32_t>(memory, parts.tokensPerExpert), at<std::uint32_t>(memory, parts.tokensPerRank), nullptr,
         at<std::int32_t>(memory, parts.expertIndex), at<std::uint32_t>(memory, parts.segmentCounts)},
        at<GridBarrier>(memory, parts.barrier),
        at<GridGate>(memory, parts.gate),
        at<std::uint32_t>(memory, parts.blockMemory),
        std::max(blocks_, lowLatencyBlocks_)};
  }
  /// The words of DispatchWorkspace::blockMemory that calls use whose blocks compute with so many words each.
  std::size_t wordsOfBlocks(int blocks, std::size_t words) const {
    return where_ == DeviceType::GPU && sharesWords(words) ? 0 : static_cast<std::size_t>(blocks) * words;
  }
  /// The same of the dispatches of a form.
  template <class Transport>
  std::size_t wordsOfDispatch(Form form, int blocks) const {
    const Dimensions sizes = dimensions(form);
    return sizes.maxTokens == 0 ? 0 : wordsOfBlocks(blocks, Dispatch<Transport>::blockWords(sizes));
  }

  template <class Transport>
  void makeForm(Communicator& communicator, Form form) {
    using Calls = FormCalls<Transport>;
    const Dimensions sizes = dimensions(form);
    auto& memory = forms_[static_cast<std::size_t>(form)];
    memory.dispatch = makeMemory<typename Calls::Dispatch>(communicator, sizes, Calls::dispatchScratch(config_, sizes));
    memory.combine = makeMemory<typename Calls::Combine>(communicator, sizes, Calls::combineScratch(config_, sizes));
  }
  template <class Collective, class Scratch>
  std::unique_ptr<mscclpp::detail::CollectiveMemory> makeMemory(Communicator& communicator,
                                                                const Dimensions& dimensions, const Scratch& scratch) {
    const mscclpp::detail::CollectiveStateRequest request{where_,
                                                          mscclpp::detail::typeNumber<Collective>(),
                                                          dimensions.maxTokens,
                                                          PipelineShape{},
                                                          scratch.windowBytes(),
                                                          Scratch::initialByte,
                                                          Scratch::firstEpoch,
                                                          0,
                                                          true};
    scratchBytes_ += scratch.windowBytes();
    return std::make_unique<mscclpp::detail::CollectiveMemory>(communicator, request, monitor_);
  }
  const FormMemory& formOf(Form form) const { return forms_[static_cast<std::size_t>(form)]; }
  BoundedWait wait() const {
    return {monitor_->deviceControl(), static_cast<std::uint64_t>(monitor_->timeout().count())};
  }

  void fill(kernels::MoeCall& call, Form form, const Handle& handle, std::uint32_t tokens, std::uint32_t packs,
            CUstream_st* stream, Phase phase) const {
    const Dimensions sizes = dimensions(form);
    const bool isLowLatency = form == Form::LowLatency;
    require(sizes.maxTokens > 0, isLowLatency ? "maxLowLatencyTokens is 0: there is no low-latency form"
                                              : "maxTokens is 0: there are low-latency calls only");
    require(tokens <= sizes.maxTokens, std::to_string(tokens) + " tokens, but the buffer is for " +
                                           std::to_string(sizes.maxTokens) + " in a call");
    call.team = team_;
    call.wait = wait();
    call.dimensions = sizes;
    call.handle = handle;
    call.handle.identity = identityOf(form);
    call.tokens = tokens;
    call.rowPacks = packs;
    call.phase = phase;
    call.isLowLatency = isLowLatency;
    call.blocks = isLowLatency ? lowLatencyBlocks_ : blocks_;
    call.stream = stream;
  }
  /// The call runs after those of the other objects of its chain (kernels/gpu_budget.hpp).
  template <class Call>
  void enqueue(Call& call) const {
    int error = 0;
    if (where_ == DeviceType::GPU) {
      kernels::CallOrder::Turn turn = share_->begin(call.stream);
      call.start = share_->start();
      error = kernels::gpu::run(call);
      turn.end();
    } else {
      error = kernels::cpu::run(call);
    }
    if (error != 0) {
      throw CudaError(std::string(errorPrefix) + ": launch of a kernel", error);
    }
    if (where_ == DeviceType::CPU) check();
  }

  static std::uint32_t nextNumber() {
    static std::atomic<std::uint32_t> next{1};
    return next++;
  }

  const BufferConfig config_;
  const std::uint32_t number_ = nextNumber();  ///< among the buffers of this process: what a handle is recognised by
  const DeviceType where_;
  const Team<> team_;
  std::shared_ptr<WaitMonitor> monitor_;
  std::unique_ptr<kernels::GpuBudget::Share> share_;  ///< null on CPUs
  int blocks_ = 1;
  int lowLatencyBlocks_ = 1;
  std::size_t cacheBytes_ = 0;       ///< of the GPU's L2 cache
  bool copiesRows_ = false;          ///< in dispatch()
  std::array<FormMemory, 2> forms_;  ///< by Form
  std::shared_ptr<void> memory_;
  std::size_t scratchBytes_ = 0;
  DispatchWorkspace workspace_{};
  SplitCalls calls_;
};

Buffer::Buffer(Communicator& communicator, DeviceType where, const BufferConfig& config,
               std::shared_ptr<WaitMonitor> monitor)
    : state_(std::make_shared<State>(communicator, where, config, std::move(monitor))) {}
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
  return state_->largestCapacity();
}
std::uint32_t Buffer::lowLatencyCapacity() const noexcept {
  return state_->stride() * static_cast<std::uint32_t>(state_->dimensions(Form::LowLatency).expertsPerRank());
}
std::uint32_t Buffer::defaultCapacity() const noexcept {
  return moe::defaultCapacity(config(), ranks());
}
std::size_t Buffer::rowBytes() const noexcept {
  return moe::rowBytes(config());
}
std::size_t Buffer::scratchBytes() const noexcept {
  return state_->scratchBytes();
}

const Handle& DispatchHandle::view() const {
  require(record_ != nullptr, "the handle is empty: get one from makeHandle()");
  return record_->view;
}
DispatchHandle Buffer::makeHandle() const {
  std::shared_ptr<void> memory = state_->allocate(handleBytes());
  DispatchHandle handle = makeHandle(memory.get());
  handle.record_->memory = std::move(memory);
  return handle;
}
DispatchHandle Buffer::makeHandle(void* memory) const {
  requireRows(memory, "the handle's memory");
  DispatchHandle handle;
  handle.record_ = std::make_shared<DispatchHandle::Record>(
      DispatchHandle::Record{state_->handleIn(memory), state_, nullptr, Form::Bandwidth, 0, false});
  return handle;
}
DispatchHandle Buffer::restoreHandle(void* memory, Form form, std::uint32_t tokens) const {
  DispatchHandle handle = makeHandle(memory);
  handle.record_->form = form;
  handle.record_->view.identity = state_->identityOf(form);
  handle.record_->tokens = tokens;
  handle.record_->isComplete = true;
  return handle;
}
std::size_t Buffer::handleBytes() const noexcept {
  return state_->handleBytes();
}
void Buffer::getDispatchLayout(const Tokens& tokens, const TokenLayout& layout, CUstream_st* stream) {
  state_->layOut(tokens, layout, stream);
}
void Buffer::dispatch(const Tokens& tokens, const ExpertBatch& batch, DispatchHandle& handle, CUstream_st* stream,
                      Phase phase) {
  state_->dispatch(tokens, batch, handle.record_, stream, phase, Form::Bandwidth);
}
void Buffer::combine(const void* results, void* output, const DispatchHandle& handle, CUstream_st* stream,
                     Phase phase) {
  state_->combine(results, output, handle.record_, stream, phase, Form::Bandwidth);
}

namespace {

/// receive(state) makes the second part of the call with that number. State: Buffer::State, which is private.
template <class State, class Receive>
ReceiveHook hookFor(std::uint64_t number, const std::shared_ptr<State>& buffer, const Receive& receive) {
  return [number, receive, weak = std::weak_ptr<State>(buffer)] {
    const auto state = weak.lock();
    require(state != nullptr, "a hook is called after its buffer has been destroyed: keep the buffer");
    require(state->isSent(number), "a hook is called twice: it receives its own call, once");
    receive(*state);
  };
}

}  // namespace

ReceiveHook Buffer::lowLatencyDispatch(const Tokens& tokens, const ExpertBatch& batch, DispatchHandle& handle,
                                       CUstream_st* stream, bool returnsHook) {
  const auto record = handle.record_;
  const auto phase = returnsHook ? Phase::Send : Phase::Both;
  const std::uint64_t number = state_->dispatch(tokens, batch, record, stream, phase, Form::LowLatency);
  if (!returnsHook) return {};
  return hookFor(number, state_, [=](State& state) {
    state.dispatch(tokens, batch, record, stream, Phase::Receive, Form::LowLatency);
  });
}
ReceiveHook Buffer::lowLatencyCombine(const void* results, void* output, const DispatchHandle& handle,
                                      CUstream_st* stream, bool returnsHook) {
  const auto record = handle.record_;
  const auto phase = returnsHook ? Phase::Send : Phase::Both;
  const std::uint64_t number = state_->combine(results, output, record, stream, phase, Form::LowLatency);
  if (!returnsHook) return {};
  return hookFor(number, state_, [=](State& state) {
    state.combine(results, output, record, stream, Phase::Receive, Form::LowLatency);
  });
}
void Buffer::check() const {
  state_->check();
}

}  // namespace mscclpp::moe
